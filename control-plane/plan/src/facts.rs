//! What a plan must know of a model. Figures only: they come from a model file before the weights are here, and from the
//! weights themselves afterwards.

use cluster_topologies::{ModelFile, schema::KvDtype};
use serde::{Deserialize, Serialize};

/// The figures of a model.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ModelFacts {
    /// Weights as they lie in memory; 0 for a model without.
    pub weights_bytes: u64,
    /// The longest sequence in tokens.
    pub context: u32,
    /// Layers that keep keys and values.
    pub layers: u32,
    /// Query heads of a layer.
    pub heads: u32,
    /// Key and value heads of a layer.
    pub kv_heads: u32,
    /// Numbers of a head.
    pub head_dim: u32,
    /// Width of the residual stream.
    pub width: u32,
    /// Entries of the vocabulary.
    pub vocabulary: u32,
}

/// Vectors of the model's width that a token needs while a layer computes it: residual, normalised, query, key, value,
/// attention output, and the two inner vectors of the feed-forward part at up to four times the width each.
const VECTORS_PER_TOKEN: u64 = 16;

impl ModelFacts {
    /// The figures of a model without weights, for the scripted and the simulated one. They keep a few bytes per token.
    pub const fn without_weights(context: u32, vocabulary: u32) -> Self {
        Self {
            weights_bytes: 0,
            context,
            layers: 1,
            heads: 1,
            kv_heads: 1,
            head_dim: 8,
            width: 8,
            vocabulary,
        }
    }

    /// Bytes of keys and values of one token.
    pub const fn kv_bytes_per_token(&self, dtype: KvDtype) -> u64 {
        2 * self.layers as u64 * self.kv_heads as u64 * self.head_dim as u64 * dtype.bytes()
    }

    /// An upper estimate of what a step of `step_tokens` tokens and `rows` rows of logits needs beside weights and pages.
    pub const fn activation_bytes(&self, step_tokens: u32, rows: u32) -> u64 {
        let number = size_of::<f32>() as u64;
        let vectors = step_tokens as u64 * self.width as u64 * VECTORS_PER_TOKEN;
        let logits = rows as u64 * self.vocabulary as u64;
        (vectors + logits) * number
    }
}

impl From<&ModelFile> for ModelFacts {
    fn from(file: &ModelFile) -> Self {
        Self {
            weights_bytes: file.bytes,
            context: file.context,
            layers: file.shape.layers,
            heads: file.shape.heads,
            kv_heads: file.shape.kv_heads,
            head_dim: file.shape.head_dim,
            width: file.shape.width,
            vocabulary: file.shape.vocabulary,
        }
    }
}
