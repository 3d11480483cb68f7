//! The model, the state it keeps per token, and what stands in for missing hardware.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ByteSize, ModelSource, Name};

/// What is served.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// Where it comes from: a model file's name, a path, `scripted:FILE` or `simulated`.
    pub source: ModelSource,
    /// The names clients may ask for; the first is the one in answers. None: those of the model file.
    #[serde(default)]
    pub served_names: Vec<String>,
    /// The longest sequence in tokens. None: as long as the model allows.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub context: Option<u32>,
    /// How quantized weights are multiplied.
    #[serde(default)]
    pub arithmetic: Arithmetic,
    /// The format of the weights, where a source offers several. None: the usual one.
    #[serde(default)]
    pub quantization: Option<Name>,
    /// The format quantized weights are turned into while they are loaded. None: they stay as they are.
    #[serde(default)]
    pub requantize: Option<Name>,
    /// What experts with quantized weights compute with.
    #[serde(default)]
    pub experts: ExpertArithmetic,
}

/// What experts with quantized weights compute with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ExpertArithmetic {
    /// Products in the format of the weights.
    #[default]
    Native,
    /// Weights are widened and multiplied with 16-bit activations, where the accelerator lacks products of their format.
    W4a16,
}

impl ExpertArithmetic {
    /// The word in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::W4a16 => "w4a16",
        }
    }
}

/// How quantized weights are multiplied.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Arithmetic {
    /// Activations are rounded to 16 bits, as two 8-bit digits: as good as exact, and fast.
    #[default]
    Int16,
    /// Activations are rounded to 8 bits: fastest; close decisions may fall otherwise.
    Int8,
    /// Weights are widened to 32-bit floats: slow, for comparison.
    Exact,
}

impl Arithmetic {
    /// The word in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Int16 => "int16",
            Self::Int8 => "int8",
            Self::Exact => "exact",
        }
    }
}

/// How the state of running sequences is kept. The same for prefill and decode, which exchange it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct KvCache {
    /// Tokens of a page, a power of two; at least 16 for models with weights. Prefixes are reused in whole pages.
    #[schemars(range(min = 1, max = 1024))]
    pub page_tokens: u32,
    /// How keys and values are stored.
    pub dtype: KvDtype,
    /// Memory for pages, for each instance that computes. None: `512MiB` on processor cores; on accelerators what is left
    /// of their share.
    pub memory: Option<ByteSize>,
    /// Whether prefixes of earlier requests are reused.
    pub prefix_reuse: bool,
    /// What keeps pages that no longer fit, fastest first. Needs the cache role.
    pub tiers: Vec<Tier>,
}

impl Default for KvCache {
    fn default() -> Self {
        Self {
            page_tokens: 16,
            dtype: KvDtype::F16,
            memory: None,
            prefix_reuse: true,
            tiers: Vec::new(),
        }
    }
}

impl KvCache {
    /// Memory for pages where nothing is said and no accelerator limits it.
    pub const MEMORY_ON_CORES: ByteSize = ByteSize::mib(512);
}

/// How keys and values are stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum KvDtype {
    /// IEEE half precision.
    F16,
    /// The upper half of a 32-bit float.
    Bf16,
    /// IEEE single precision.
    F32,
    /// 8-bit float E4M3.
    Fp8,
}

impl KvDtype {
    /// The word in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::F32 => "f32",
            Self::Fp8 => "fp8",
        }
    }

    /// Bytes of one number.
    pub const fn bytes(self) -> u64 {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::Fp8 => 1,
        }
    }
}

/// One place below the memory of the instances that compute.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// Main memory of the machine, for each cache instance.
    Host(ByteSize),
    /// A file on a local disk.
    Disk(ByteSize),
}

/// What stands in for declared hardware that is not here.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Emulate {
    /// The small model that is served instead.
    pub model: ModelSource,
    /// How it keeps keys and values. Exact unless said otherwise, so that its answers do not depend on how it is spread.
    #[serde(default = "exact")]
    pub kv_dtype: KvDtype,
}

fn exact() -> KvDtype {
    KvDtype::F32
}
