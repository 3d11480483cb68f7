//! Plain numbers about a model for a planner. They can be had without its weights.

use cluster_kernels::KvDType;

use crate::{classes::Classes, spec::ModelSpec};

/// How large a model is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Facts {
    /// Weights, each counted once.
    pub parameters: u64,
    /// Bytes the matrices take.
    pub weight_bytes: u64,
    /// Bytes of a token's keys and values over all layers, in 16 bits.
    pub kv_bytes_per_token: u64,
    /// Layers.
    pub layers: u32,
    /// Width of the residual stream.
    pub hidden: u32,
    /// Query heads of the first layer.
    pub heads: u32,
    /// Key and value heads of the first layer.
    pub kv_heads: u32,
    /// Width of a head of the first layer.
    pub head_dim: u32,
    /// Experts of the layer that has most; 0 where all are dense.
    pub experts: u32,
    /// Entries of a row of logits.
    pub vocabulary: u32,
    /// The longest sequence in tokens.
    pub context: u32,
}

impl Facts {
    pub(crate) fn of(spec: &ModelSpec, weight_bytes: u64) -> Self {
        let attention = &spec.layers[0].attention;
        let experts = spec.layers.iter().map(|layer| layer.ffn.expert_count());
        Self {
            parameters: spec.parameters(),
            weight_bytes,
            kv_bytes_per_token: Classes::of(spec, 16, KvDType::F16).bytes_per_token() as u64,
            layers: spec.layers.len() as u32,
            hidden: spec.hidden as u32,
            heads: attention.heads as u32,
            kv_heads: attention.kv_heads as u32,
            head_dim: attention.head_dim as u32,
            experts: experts.max().unwrap_or(0) as u32,
            vocabulary: spec.vocabulary as u32,
            context: spec.context as u32,
        }
    }
}
