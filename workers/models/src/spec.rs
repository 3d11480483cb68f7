//! What a model is, as a table of layers, and nothing about how it is stored or run.
//!
//! ```text
//!  config.json ──▶ spec/config.rs ──┐
//!                                   ├─▶ ModelSpec { width, vocabulary, layers: [attention, ffn] } ─▶ weights, decoder
//!  GGUF metadata ▶ spec/metadata.rs ┘
//! ```
//! The families differ in a few switches (`Family`), all of them resolved here: no code further down asks for a model's name.

mod config;
mod family;
mod metadata;
mod muse;
mod rope;

#[cfg(test)]
mod tests;

pub use cluster_kernels::Activation;
pub use config::from_config;
pub use family::Family;
pub use metadata::from_gguf;
pub use rope::{Rope, RopeScaling};

/// Why a description cannot be turned into a model that runs.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SpecError {
    /// A family nobody wrote down here.
    #[error("'{key}' is '{name}', which is not supported; supported are {supported}")]
    Family {
        /// Where it says so.
        key: &'static str,
        /// What it says.
        name: String,
        /// What it could say.
        supported: String,
    },
    /// A key that is needed is absent.
    #[error("'{0}' is missing")]
    Missing(String),
    /// A key asks for something the decoder does not do.
    #[error("'{key}' is {value}, which is not supported; {instead}")]
    Unsupported {
        /// Which key.
        key: String,
        /// Its value.
        value: String,
        /// What is supported.
        instead: &'static str,
    },
    /// Values that contradict each other or themselves.
    #[error("'{key}' is {value}; {rule}")]
    Invalid {
        /// Which key.
        key: String,
        /// Its value.
        value: String,
        /// What must hold.
        rule: String,
    },
    /// The file is not JSON, or a value has another type than the key asks for.
    #[error("not a model configuration: {0}")]
    Json(String),
    /// The metadata cannot be read.
    #[error(transparent)]
    Gguf(#[from] crate::gguf::GgufError),
}

/// More layers than any model has; a description with more is damaged.
const LAYERS_MAX: usize = 1024;

/// A decoder-only transformer.
#[derive(Clone, PartialEq, Debug)]
pub struct ModelSpec {
    /// Which family it came from.
    pub family: Family,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Rows of the embedding and of the head.
    pub vocabulary: usize,
    /// The longest sequence it was made for.
    pub context: usize,
    /// Added to the mean square in every norm but those behind parts.
    pub norm_epsilon: f32,
    /// Added to the mean square in norms behind parts and behind experts.
    pub post_norm_epsilon: f32,
    /// Whether the embedding is also the head.
    pub tied_head: bool,
    /// What an embedding is multiplied by.
    pub embedding_scale: f32,
    /// Whether an embedding is normed, without weights. Rows that stand in for media are normed already.
    pub embedding_norm: bool,
    /// What a logit is multiplied by.
    pub logit_scale: f32,
    /// No logit becomes larger: it is `cap · tanh(logit / cap)`.
    pub logit_cap: Option<f32>,
    /// Between the two matrices of the feed-forward part.
    pub activation: Activation,
    /// The layers, first to last.
    pub layers: Vec<LayerSpec>,
}

/// One layer: attention, then the feed-forward part, each behind a norm.
#[derive(Clone, PartialEq, Debug)]
pub struct LayerSpec {
    /// The first part.
    pub attention: AttentionSpec,
    /// The second part.
    pub ffn: FfnSpec,
    /// The norm of the first part's output, before it joins the residual stream.
    pub post_attention: Norm,
    /// The norm of the second part's output.
    pub post_ffn: Norm,
    /// How parts join the residual stream: `None` adds them; else each channel is a blend `α · stream + β · part`, with β the
    /// sigmoid of the file's gate divided by this temperature, and `α² + β² = 1`.
    pub residual_gate: Option<f32>,
}

/// A root-mean-square norm where a model may have one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Norm {
    /// There is none.
    None,
    /// Without weights.
    Plain,
    /// Multiplied by weights.
    Gain,
    /// Its input is multiplied by weights.
    InputScaled,
}

/// Attention with grouped heads.
#[derive(Clone, PartialEq, Debug)]
pub struct AttentionSpec {
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; query head i uses head i / (heads / kv_heads).
    pub kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Whether queries, keys and values have a bias.
    pub bias: bool,
    /// The norm of each query and key head.
    pub head_norm: Norm,
    /// Whether each head's result is normed, without weights.
    pub output_norm: bool,
    /// Whether results are multiplied by the sigmoid of a gate that the layer's input gives.
    pub output_gate: bool,
    /// What a product of query and key is multiplied by.
    pub scale: f32,
    /// How many positions a query sees, its own included; `None`: all.
    pub window: Option<usize>,
    /// How queries and keys are rotated; `None`: not at all.
    pub rope: Option<Rope>,
}

impl AttentionSpec {
    /// Width of all query heads together.
    pub fn query_width(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Width of all key (or value) heads together.
    pub fn kv_width(&self) -> usize {
        self.kv_heads * self.head_dim
    }
}

/// The feed-forward part.
#[derive(Clone, PartialEq, Debug)]
pub enum FfnSpec {
    /// One for all tokens.
    Dense {
        /// Its inner width.
        width: usize,
    },
    /// Some of many for each token.
    Experts(ExpertsSpec),
}

/// A mixture of experts without shared ones.
#[derive(Clone, PartialEq, Debug)]
pub struct ExpertsSpec {
    /// The inner width of each.
    pub width: usize,
    /// How many there are.
    pub count: usize,
    /// How many a token goes through.
    pub active: usize,
    /// How they are chosen and weighed.
    pub routing: RoutingSpec,
    /// Where experts work on narrower rows than the stream's: their width. Rows are projected and normed before, each
    /// expert's result is normed (input-scaled), and the weighted sum is projected back.
    pub pool: Option<usize>,
}

/// How a token's experts are chosen and weighed.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum RoutingSpec {
    /// By the softmax of the router's numbers.
    Softmax {
        /// Whether the weights of a token's experts are made to add up to 1.
        normalize: bool,
    },
    /// By their sigmoids, to which the file has a bias that counts for the choice alone; weights add up to `scale`.
    Sigmoid {
        /// What the router's numbers are multiplied by.
        logit_scale: f32,
        /// What the weights of a token add up to.
        scale: f32,
    },
}

impl ExpertsSpec {
    /// The width of what experts take and give.
    pub fn row_width(&self, hidden: usize) -> usize {
        self.pool.unwrap_or(hidden)
    }

    fn parameters(&self, hidden: usize) -> usize {
        let row = self.row_width(hidden);
        let bias = match self.routing {
            RoutingSpec::Softmax { .. } => 0,
            RoutingSpec::Sigmoid { .. } => self.count,
        };
        let pooling = self.pool.map_or(0, |pool| 2 * hidden * pool + 2 * pool);
        self.count * (3 * row * self.width + hidden) + bias + pooling
    }
}

impl ModelSpec {
    /// Checks what the decoder relies on; both readers end with it.
    fn checked(self) -> Result<Self, SpecError> {
        positive("hidden size", self.hidden)?;
        positive("vocabulary size", self.vocabulary)?;
        positive("context length", self.context)?;
        for layer in &self.layers {
            layer.attention.check()?;
            layer.ffn.check()?;
        }
        Ok(self)
    }

    /// Weights of all matrices and norms, each counted once.
    pub fn parameters(&self) -> u64 {
        let embedding = (self.vocabulary * self.hidden) as u64;
        let head = if self.tied_head { 0 } else { embedding };
        let layers: u64 = self.layers.iter().map(|layer| layer.parameters(self.hidden)).sum();
        embedding + head + layers + self.hidden as u64
    }
}

impl Norm {
    fn has_weights(self) -> bool {
        matches!(self, Norm::Gain | Norm::InputScaled)
    }

    fn gain_if(there: bool) -> Self {
        if there { Norm::Gain } else { Norm::None }
    }
}

impl LayerSpec {
    fn parameters(&self, hidden: usize) -> u64 {
        let attention = &self.attention;
        let (query, kv) = (attention.query_width(), attention.kv_width());
        let bias = if attention.bias { query + 2 * kv } else { 0 };
        let head_norms = if attention.head_norm.has_weights() {
            2 * attention.head_dim
        } else {
            0
        };
        let output_gate = if attention.output_gate { hidden * query } else { 0 };
        let post_norms = [self.post_attention, self.post_ffn].map(Norm::has_weights);
        let norms = 2 + post_norms.map(usize::from).iter().sum::<usize>();
        let residual_gates = if self.residual_gate.is_some() { 2 } else { 0 };
        let ffn = match &self.ffn {
            FfnSpec::Dense { width } => 3 * hidden * width,
            FfnSpec::Experts(experts) => experts.parameters(hidden),
        };
        let vectors = (norms + residual_gates) * hidden;
        (hidden * (2 * query + 2 * kv) + output_gate + bias + head_norms + vectors + ffn) as u64
    }
}

impl AttentionSpec {
    fn check(&self) -> Result<(), SpecError> {
        positive("attention heads", self.heads)?;
        positive("key and value heads", self.kv_heads)?;
        positive("head width", self.head_dim)?;
        if !self.heads.is_multiple_of(self.kv_heads) {
            return Err(SpecError::Invalid {
                key: "key and value heads".into(),
                value: self.kv_heads.to_string(),
                rule: format!("it must divide the {} attention heads", self.heads),
            });
        }
        if !self.head_dim.is_multiple_of(2) {
            return Err(SpecError::Invalid {
                key: "head width".into(),
                value: self.head_dim.to_string(),
                rule: "rotation needs an even number".into(),
            });
        }
        if self.window == Some(0) {
            return Err(SpecError::Invalid {
                key: "sliding window".into(),
                value: "0".into(),
                rule: "a query sees at least its own position".into(),
            });
        }
        Ok(())
    }
}

impl FfnSpec {
    /// How many experts; 0 for a dense part.
    pub(crate) fn expert_count(&self) -> usize {
        match self {
            FfnSpec::Dense { .. } => 0,
            FfnSpec::Experts(experts) => experts.count,
        }
    }

    fn check(&self) -> Result<(), SpecError> {
        match self {
            FfnSpec::Dense { width } => positive("feed-forward width", *width),
            FfnSpec::Experts(experts) => {
                positive("expert width", experts.width)?;
                positive("active experts", experts.active)?;
                positive("width of the experts' rows", experts.row_width(1))?;
                if experts.active > experts.count {
                    return Err(SpecError::Invalid {
                        key: "active experts".into(),
                        value: experts.active.to_string(),
                        rule: format!("there are only {} experts", experts.count),
                    });
                }
                Ok(())
            }
        }
    }
}

/// The number of layers, checked before a table of that length is made.
fn layer_count(key: &str, count: usize) -> Result<usize, SpecError> {
    if count == 0 || count > LAYERS_MAX {
        return Err(SpecError::Invalid {
            key: key.into(),
            value: count.to_string(),
            rule: format!("between 1 and {LAYERS_MAX} are possible"),
        });
    }
    Ok(count)
}

fn positive(what: &str, value: usize) -> Result<(), SpecError> {
    if value == 0 || value > u32::MAX as usize {
        return Err(SpecError::Invalid {
            key: what.into(),
            value: value.to_string(),
            rule: "it must be at least 1 and fit in 32 bits".into(),
        });
    }
    Ok(())
}
