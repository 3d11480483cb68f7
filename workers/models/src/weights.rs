//! The weights of a model, or one rank's part of them, in the kernels' layout, shared by all instances.
//!
//! ```text
//!  Checkpoint (names, file bytes) + ModelSpec (shapes) ─▶ Weights { embedding, layers: [norms, matrices], head }
//! ```
//! Every tensor the description asks for must be there with the right shape, and every tensor of the file must have been
//! asked for: a file that holds more than the decoder computes is another model.

mod cut;
mod loader;

use std::ops::Range;

use cluster_kernels::{Expert, KernelError, Matrix};

pub(crate) use loader::{Loading, load};

/// Why tensors cannot become weights.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WeightsError {
    /// A tensor that is needed.
    #[error("tensor '{0}' is missing")]
    Missing(String),
    /// A tensor with another shape than the description says.
    #[error("tensor '{name}' is {got:?}, expected {expected:?}")]
    Shape {
        /// Which tensor.
        name: String,
        /// What the description says.
        expected: Vec<usize>,
        /// What the file has.
        got: Vec<usize>,
    },
    /// A tensor of a type that is not supported.
    #[error("tensor '{name}' has type {dtype}, which is not supported")]
    DType {
        /// Which tensor.
        name: String,
        /// Its type.
        dtype: String,
    },
    /// Tensors that this kind of model does not have.
    #[error("the file has {count} tensors that a {family} model does not use, among them '{name}'")]
    Unused {
        /// The kind of model.
        family: &'static str,
        /// How many there are.
        count: usize,
        /// One of them.
        name: String,
    },
    /// The kernels refuse.
    #[error("tensor '{name}': {source}")]
    Kernel {
        /// Which tensor.
        name: String,
        /// Why.
        source: KernelError,
    },
}

/// All weights of a model, or one rank's part of them.
pub(crate) struct Weights {
    /// Its rows are those of `tokens`.
    pub(crate) embedding: Matrix,
    /// None: the embedding is the head.
    head: Option<Matrix>,
    /// Which part of the vocabulary the embedding and the head have.
    pub(crate) tokens: Range<usize>,
    pub(crate) norm: Vec<f32>,
    /// The angles are divided by these, where the file has them.
    pub(crate) rope_divisors: Option<Vec<f32>>,
    pub(crate) layers: Vec<LayerWeights>,
}

/// The weights of a layer.
pub(crate) struct LayerWeights {
    pub(crate) attention_norm: Vec<f32>,
    pub(crate) query: Linear,
    pub(crate) key: Linear,
    pub(crate) value: Linear,
    pub(crate) head_norms: Option<HeadNorms>,
    /// Of the heads' results.
    pub(crate) output_norm: Option<Vec<f32>>,
    pub(crate) output_gate: Option<Matrix>,
    pub(crate) output: Matrix,
    pub(crate) attention_join: Join,
    pub(crate) ffn_norm: Vec<f32>,
    pub(crate) ffn: FfnWeights,
    pub(crate) ffn_join: Join,
}

/// The norms of query heads and of key heads.
pub(crate) struct HeadNorms {
    pub(crate) query: Vec<f32>,
    pub(crate) key: Vec<f32>,
}

/// A matrix with its bias.
pub(crate) struct Linear {
    pub(crate) matrix: Matrix,
    pub(crate) bias: Option<Vec<f32>>,
}

/// How a part's output joins the residual stream.
pub(crate) struct Join {
    pub(crate) norm: Option<PostNorm>,
    pub(crate) blend: Option<Blend>,
}

/// A norm of rows, with weights before or behind it.
pub(crate) struct PostNorm {
    /// What the input is multiplied by.
    pub(crate) factors: Option<Vec<f32>>,
    /// What the result is multiplied by.
    pub(crate) weight: Vec<f32>,
}

/// Of each channel, the share of the stream and the share of the part.
pub(crate) struct Blend {
    pub(crate) keep: Vec<f32>,
    pub(crate) take: Vec<f32>,
}

/// The matrices of a feed-forward part.
pub(crate) enum FfnWeights {
    Dense(Gated),
    Experts(ExpertsWeights),
}

/// A mixture of experts.
pub(crate) struct ExpertsWeights {
    pub(crate) router: Matrix,
    /// Added for the choice alone.
    pub(crate) router_bias: Option<Vec<f32>>,
    pub(crate) pool: Option<Pool>,
    /// Those of `here`, whole or in part.
    pub(crate) experts: Vec<Gated>,
    pub(crate) here: Range<usize>,
    /// Whether every expert is on one rank alone. Each rank must say the same, also one that happens to have all of them.
    pub(crate) whole: bool,
}

/// The way to the narrower rows of experts and back.
pub(crate) struct Pool {
    pub(crate) into: Matrix,
    pub(crate) norm: Vec<f32>,
    /// Of every expert's result.
    pub(crate) result_norm: PostNorm,
    pub(crate) back: Matrix,
}

/// down(activation(gate x) ⊙ up x).
pub(crate) struct Gated {
    pub(crate) gate: Matrix,
    pub(crate) up: Matrix,
    pub(crate) down: Matrix,
}

impl Gated {
    pub(crate) fn as_expert(&self) -> Expert<'_> {
        Expert {
            gate: &self.gate,
            up: &self.up,
            down: &self.down,
        }
    }

    fn bytes(&self) -> usize {
        self.gate.bytes() + self.up.bytes() + self.down.bytes()
    }
}

impl Weights {
    /// The matrix from the last norm to logits.
    pub(crate) fn head(&self) -> &Matrix {
        self.head.as_ref().unwrap_or(&self.embedding)
    }

    /// Bytes of memory the matrices take.
    pub(crate) fn bytes(&self) -> usize {
        let layers: usize = self.layers.iter().map(LayerWeights::bytes).sum();
        self.embedding.bytes() + self.head.as_ref().map_or(0, Matrix::bytes) + layers
    }
}

impl LayerWeights {
    fn bytes(&self) -> usize {
        let linears = [&self.query.matrix, &self.key.matrix, &self.value.matrix, &self.output];
        let gate = self.output_gate.as_ref().map_or(0, Matrix::bytes);
        let ffn = match &self.ffn {
            FfnWeights::Dense(gated) => gated.bytes(),
            FfnWeights::Experts(experts) => experts.bytes(),
        };
        linears.map(Matrix::bytes).iter().sum::<usize>() + gate + ffn
    }
}

impl ExpertsWeights {
    fn bytes(&self) -> usize {
        let pool = self
            .pool
            .as_ref()
            .map_or(0, |pool| pool.into.bytes() + pool.back.bytes());
        self.router.bytes() + pool + self.experts.iter().map(Gated::bytes).sum::<usize>()
    }
}
