//! The figures that decide how a model is cut and how much memory a token takes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Problem;

/// The figures of a language model.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Shape {
    /// Layers with attention.
    #[schemars(range(min = 1))]
    pub layers: u32,
    /// Query heads of a layer.
    #[schemars(range(min = 1))]
    pub heads: u32,
    /// Key and value heads of a layer.
    #[schemars(range(min = 1))]
    pub kv_heads: u32,
    /// Numbers of a head.
    #[schemars(range(min = 1))]
    pub head_dim: u32,
    /// Width of the residual stream.
    #[schemars(range(min = 1))]
    pub width: u32,
    /// Entries of the vocabulary.
    #[schemars(range(min = 1))]
    pub vocabulary: u32,
    /// What sequences keep, in classes. None: every layer keeps every token.
    #[serde(default)]
    pub kv: Vec<KvLayers>,
    /// Its experts. None: it is dense.
    #[serde(default)]
    pub experts: Option<Experts>,
    /// What turns its media into embeddings. None: it takes text only.
    #[serde(default)]
    pub media: Option<Towers>,
}

/// The towers in front of the model; the largest of them decides.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Towers {
    /// Patches of the largest picture.
    #[schemars(range(min = 1))]
    pub patches_max: u32,
    /// Attention heads of a layer.
    #[schemars(range(min = 1))]
    pub heads: u32,
    /// Width of a patch.
    #[schemars(range(min = 1))]
    pub width: u32,
    /// Width inside a layer.
    #[schemars(range(min = 1))]
    pub inner: u32,
}

/// The experts of a layer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Experts {
    /// How many a layer has.
    #[schemars(range(min = 1))]
    pub count: u32,
    /// How many a token goes through.
    #[schemars(range(min = 1))]
    pub chosen: u32,
    /// Width of what goes in and comes out.
    #[schemars(range(min = 1))]
    pub width: u32,
    /// Width inside.
    #[schemars(range(min = 1))]
    pub inner: u32,
}

/// Layers that keep state in the same way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum KvLayers {
    /// Every token is kept.
    Full(FullLayers),
    /// Only the last tokens are kept.
    Window(WindowLayers),
    /// One entry is kept for several tokens.
    Compressed(RatioLayers),
    /// A few rows are kept for a sequence of any length.
    Pending(SequenceRows),
}

/// Layers that keep every token.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FullLayers {
    /// How many.
    #[schemars(range(min = 1))]
    pub layers: u32,
}

/// Layers that keep the last tokens.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WindowLayers {
    /// How many.
    #[schemars(range(min = 1))]
    pub layers: u32,
    /// Tokens that are read, the query's own included.
    #[schemars(range(min = 1))]
    pub tokens: u32,
    /// Bytes of an entry with a layout of its own. None: a key and a value for each head, in the cache's format.
    #[serde(default)]
    pub entry_bytes: Option<u32>,
}

/// Layers that keep one entry for several tokens.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RatioLayers {
    /// How many.
    #[schemars(range(min = 1))]
    pub layers: u32,
    /// Tokens of an entry.
    #[schemars(range(min = 1))]
    pub ratio: u32,
    /// Bytes of an entry. Every rank holds all of it.
    #[schemars(range(min = 1))]
    pub entry_bytes: u32,
}

/// Rows of a sequence.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SequenceRows {
    /// Bytes of a sequence, over all layers. Every rank holds all of it.
    #[schemars(range(min = 1))]
    pub sequence_bytes: u64,
}

impl Shape {
    /// What is wrong with the figures.
    pub(crate) fn problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        if !self.heads.is_multiple_of(self.kv_heads) {
            let message = format!(
                "{} heads cannot share {} key and value heads evenly",
                self.heads, self.kv_heads
            );
            let help = "correct the figures; heads must be a multiple of kv_heads";
            problems.push(Problem::new("uneven-heads", "shape.kv_heads", message, help));
        }
        let counts_tokens = |class: &KvLayers| matches!(class, KvLayers::Full(_) | KvLayers::Compressed(_));
        if self.kv.first().is_some_and(|first| !counts_tokens(first)) {
            let message = "the first class does not keep whole sequences";
            let help = "put a 'full' or 'compressed' class first: pages are counted in it";
            problems.push(Problem::new("class-order", "shape.kv", message, help));
        }
        problems
    }
}
