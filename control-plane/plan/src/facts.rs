//! What a plan must know of a model. Figures only: they come from a model file before the weights are here, and from the
//! weights themselves afterwards.

use cluster_topologies::{
    Experts, Holder, KvLayers, ModelFile, ModelOrigin, ResolvedModel, Split, Towers,
    schema::{KvDtype, Parallel},
};
use serde::{Deserialize, Serialize};

/// The figures of a model.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ModelFacts {
    /// Weights as they lie in memory; 0 for a model without.
    pub weights_bytes: u64,
    /// What the weights consist of. None: ranks hold equal shares.
    pub weights: Vec<Weights>,
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
    /// Its experts; none when it is dense.
    pub experts: Option<Experts>,
    /// What sequences keep, in the model's order; the first class counts tokens.
    pub classes: Vec<KvClass>,
    /// What turns its media into embeddings; none when it takes text only.
    pub towers: Option<Towers>,
}

/// Weights that ranks hold in the same way.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Weights {
    /// What it is.
    pub part: String,
    /// All of it.
    pub bytes: u64,
    /// How ranks share it.
    pub split: Split,
    /// Who holds it.
    pub holder: Holder,
}

/// State of sequences that several layers keep in the same way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KvClass {
    /// How it grows.
    pub kind: KvKind,
    /// How many layers keep it.
    pub layers: u32,
    /// What one entry of one layer consists of.
    pub entry: KvEntry,
}

/// How a class of state grows with a sequence.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KvKind {
    /// One entry per token, kept for the whole sequence.
    Full,
    /// One entry per token, of which only the last `tokens` are read.
    Window {
        /// Entries that are read.
        tokens: u32,
    },
    /// One entry for `ratio` tokens.
    Compressed {
        /// Tokens of an entry.
        ratio: u32,
    },
    /// One entry per sequence.
    Pending,
}

/// One entry of one layer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KvEntry {
    /// A key and a value for each head, in the cache's format; tensor-parallel ranks hold some heads each.
    Heads {
        /// Key and value heads.
        heads: u32,
        /// Numbers of a head.
        head_dim: u32,
    },
    /// A layout of its own, which every rank holds whole.
    Bytes(u64),
}

impl KvClass {
    /// Layers that keep every token.
    pub const fn full(layers: u32, heads: u32, head_dim: u32) -> Self {
        Self {
            kind: KvKind::Full,
            layers,
            entry: KvEntry::Heads { heads, head_dim },
        }
    }

    /// Layers that keep the last `tokens` tokens.
    pub const fn window(tokens: u32, layers: u32, heads: u32, head_dim: u32) -> Self {
        Self {
            kind: KvKind::Window { tokens },
            layers,
            entry: KvEntry::Heads { heads, head_dim },
        }
    }

    /// Bytes of an entry over all layers, on one of `tensor` ranks.
    pub fn entry_bytes(&self, dtype: KvDtype, tensor: u32) -> u64 {
        let one = match self.entry {
            // A head is never cut: ranks beyond the number of heads hold copies.
            KvEntry::Heads { heads, head_dim } => {
                2 * u64::from(heads.div_ceil(tensor)) * u64::from(head_dim) * dtype.bytes()
            }
            KvEntry::Bytes(bytes) => bytes,
        };
        one * u64::from(self.layers)
    }

    /// Bytes of a block of `block_tokens` tokens on one of `tensor` ranks.
    pub fn block_bytes(&self, block_tokens: u32, dtype: KvDtype, tensor: u32) -> u64 {
        let entries = match self.kind {
            KvKind::Full | KvKind::Window { .. } => u64::from(block_tokens),
            KvKind::Compressed { ratio } => u64::from(block_tokens.div_ceil(ratio)),
            KvKind::Pending => 1,
        };
        entries * self.entry_bytes(dtype, tensor)
    }
}

/// Vectors of the model's width that a token needs while a layer computes it: residual, normalised, query, key, value,
/// attention output, and the two inner vectors of the feed-forward part at up to four times the width each.
const VECTORS_PER_TOKEN: u64 = 16;

impl ModelFacts {
    /// The figures of a model without weights, for the scripted and the simulated one. They keep a few bytes per token.
    pub fn without_weights(context: u32, vocabulary: u32) -> Self {
        Self {
            weights_bytes: 0,
            weights: Vec::new(),
            context,
            layers: 1,
            heads: 1,
            kv_heads: 1,
            head_dim: 8,
            width: 8,
            vocabulary,
            experts: None,
            classes: vec![KvClass::full(1, 1, 8)],
            towers: None,
        }
    }

    /// The figures of a model that has a model file, in the format the topology asks for. None: the model has no file.
    pub fn declared(model: &ResolvedModel) -> Option<Self> {
        match &model.origin {
            ModelOrigin::File(file) => {
                let wanted = model.requantize.as_ref().or(model.quantization.as_ref());
                Some(Self::of_file(file, file.quantization(wanted).map(|one| one.bits)))
            }
            _ => None,
        }
    }

    /// The figures of a model that has a model file, in its usual format. None: the model has no file.
    pub fn of_origin(origin: &ModelOrigin) -> Option<Self> {
        match origin {
            ModelOrigin::File(file) => Some(Self::from(file.as_ref())),
            _ => None,
        }
    }

    fn of_file(file: &ModelFile, quantized_bits: Option<f64>) -> Self {
        let shape = &file.shape;
        let weights: Vec<Weights> = file.weights.iter().map(|part| weights(part, quantized_bits)).collect();
        let sum = weights.iter().map(|part| part.bytes).sum();
        Self {
            weights_bytes: if weights.is_empty() {
                file.bytes.unwrap_or(0)
            } else {
                sum
            },
            weights,
            context: file.context,
            layers: shape.layers,
            heads: shape.heads,
            kv_heads: shape.kv_heads,
            head_dim: shape.head_dim,
            width: shape.width,
            vocabulary: shape.vocabulary,
            experts: shape.experts,
            classes: classes(file),
            towers: shape.media,
        }
    }

    /// Bytes of keys and values of one token, while every class still holds it.
    pub fn kv_bytes_per_token(&self, dtype: KvDtype) -> u64 {
        let per_token = |class: &KvClass| match class.kind {
            KvKind::Full | KvKind::Window { .. } => class.entry_bytes(dtype, 1),
            KvKind::Compressed { ratio } => class.entry_bytes(dtype, 1).div_ceil(u64::from(ratio)),
            KvKind::Pending => 0,
        };
        self.classes.iter().map(per_token).sum()
    }

    /// Bytes of weights that one of the ranks of `parallel` holds, of those that `holder` needs.
    pub fn rank_weights_bytes(&self, parallel: Parallel, holder: Holder) -> u64 {
        let ranks = u64::from(parallel.ranks());
        let tensor = u64::from(parallel.tensor);
        if self.weights.is_empty() {
            return if holder == Holder::Language {
                self.weights_bytes.div_ceil(ranks)
            } else {
                0
            };
        }
        let share = |part: &Weights| match part.split {
            Split::Copied => part.bytes,
            Split::Tensor => part.bytes.div_ceil(tensor),
            Split::KvHeads => part.bytes.div_ceil(tensor.min(u64::from(self.kv_heads))),
            Split::Experts => part.bytes.div_ceil(ranks),
        };
        let held = self.weights.iter().filter(|part| part.holder == holder);
        held.map(share).sum()
    }

    /// An upper estimate of what a step of `step_tokens` tokens and `rows` rows of logits needs beside weights and pages.
    pub const fn activation_bytes(&self, step_tokens: u32, rows: u32) -> u64 {
        let number = size_of::<f32>() as u64;
        let vectors = step_tokens as u64 * self.width as u64 * VECTORS_PER_TOKEN;
        let logits = rows as u64 * self.vocabulary as u64;
        (vectors + logits) * number
    }

    /// The same for one of the ranks of `parallel` on accelerators: a residual stream of 32 bits and three branch vectors of
    /// 16, queries, gates, outputs, keys and values of the rank's heads, rows on their way through experts at twice the even
    /// share, and logits of the whole vocabulary.
    pub fn rank_activation_bytes(&self, step_tokens: u32, rows: u32, parallel: Parallel) -> u64 {
        // Independent groups compute tokens of their own.
        let tokens = u64::from(step_tokens.div_ceil(parallel.data));
        let rows = rows.div_ceil(parallel.data);
        let width = u64::from(self.width);
        let stream = tokens.div_ceil(u64::from(parallel.sequence)) * width * (4 + 3 * 2);
        let heads = u64::from((3 * self.heads).div_ceil(parallel.tensor) + 2 * self.kv_heads.div_ceil(parallel.tensor));
        let attention = tokens * heads * u64::from(self.head_dim) * 2;
        let inner = self
            .experts
            .map_or(tokens * 8 * width / u64::from(parallel.tensor), |experts| {
                let passes = (tokens * u64::from(experts.chosen) * 2).div_ceil(u64::from(parallel.tensor));
                passes * u64::from(experts.width + 3 * experts.inner)
            });
        let logits = u64::from(rows) * u64::from(self.vocabulary) * 4;
        stream + attention + inner * 2 + logits
    }

    /// What encoding the largest picture needs on one of `tensor` ranks: its patches in six vectors of the tower's width
    /// and one of its inner width.
    pub fn encoder_activation_bytes(&self, tensor: u32) -> u64 {
        self.towers.map_or(0, |towers| {
            let row = 6 * u64::from(towers.width) + u64::from(towers.inner.div_ceil(tensor));
            u64::from(towers.patches_max) * row * 2
        })
    }
}

fn weights(part: &cluster_topologies::WeightPart, quantized_bits: Option<f64>) -> Weights {
    let bits = part
        .bits
        .or(quantized_bits)
        .expect("a model file whose parts lack bits has quantizations");
    Weights {
        part: part.part.clone(),
        bytes: (part.count() as f64 * bits / 8.0).ceil() as u64,
        split: part.split,
        holder: part.holder,
    }
}

fn classes(file: &ModelFile) -> Vec<KvClass> {
    let shape = &file.shape;
    let heads = KvEntry::Heads {
        heads: shape.kv_heads,
        head_dim: shape.head_dim,
    };
    if shape.kv.is_empty() {
        return vec![KvClass::full(shape.layers, shape.kv_heads, shape.head_dim)];
    }
    let class = |declared: &KvLayers| match *declared {
        KvLayers::Full(full) => KvClass {
            kind: KvKind::Full,
            layers: full.layers,
            entry: heads,
        },
        KvLayers::Window(window) => KvClass {
            kind: KvKind::Window { tokens: window.tokens },
            layers: window.layers,
            entry: window.entry_bytes.map_or(heads, |bytes| KvEntry::Bytes(bytes.into())),
        },
        KvLayers::Compressed(compressed) => KvClass {
            kind: KvKind::Compressed {
                ratio: compressed.ratio,
            },
            layers: compressed.layers,
            entry: KvEntry::Bytes(compressed.entry_bytes.into()),
        },
        KvLayers::Pending(pending) => KvClass {
            kind: KvKind::Pending,
            layers: 1,
            entry: KvEntry::Bytes(pending.sequence_bytes),
        },
    };
    shape.kv.iter().map(class).collect()
}

impl From<&ModelFile> for ModelFacts {
    fn from(file: &ModelFile) -> Self {
        Self::of_file(file, file.quantization(None).map(|one| one.bits))
    }
}
