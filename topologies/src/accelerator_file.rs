//! Accelerator files: what a plan may count on when a topology says `accelerator: NAME`. Each figure says where it is from.

use std::sync::LazyLock;

use schemars::{JsonSchema, generate::SchemaSettings};
use serde::{Deserialize, Serialize};

use crate::{ByteSize, Name, Problems, document::read};

/// A kind of accelerator.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AcceleratorFile {
    /// Nodes refer to it by this name.
    pub name: Name,
    /// What it is called by its maker.
    pub title: String,
    /// What computes.
    pub processor: Processor,
    /// Its own memory.
    pub memory: Figure<ByteSize>,
    /// Bytes of its memory that it reads in a second.
    pub bandwidth: Figure<ByteSize>,
    /// How accelerators of a domain reach each other.
    pub link: Link,
    /// How accelerators of different domains reach each other. None: not at all.
    #[serde(default)]
    pub network: Option<Figure<ByteSize>>,
    /// Formats whose products it computes.
    pub formats: Vec<NumberFormat>,
    /// Formats it reads, widens and multiplies with 16-bit activations.
    #[serde(default)]
    pub weight_only: Vec<NumberFormat>,
    /// Where the lists of formats come from.
    pub formats_source: String,
    /// The machine that a declared node is taken for unless it says otherwise.
    pub machine: Machine,
}

/// What computes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Processor {
    /// A graphics processor; collectives and transfers are NCCL's or RCCL's.
    Gpu,
    /// Processor cores with their own memory: a socket or a NUMA node.
    Cpu,
}

/// A figure and where it is from.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Figure<T> {
    /// The figure.
    pub value: T,
    /// Where it is from.
    pub source: String,
}

/// A link between accelerators.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// What it is called.
    pub kind: String,
    /// Bytes a second and direction, for each accelerator.
    pub bandwidth: ByteSize,
    /// The most accelerators of one domain.
    #[schemars(range(min = 1))]
    pub domain_max: u32,
    /// Where the figures are from.
    pub source: String,
}

/// A format of weights.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum NumberFormat {
    /// Four bits, a scale of eight bits for 16 numbers.
    Nvfp4,
    /// Four bits, a power of two for 32 numbers.
    Mxfp4,
    /// Four bits, whole numbers.
    Int4,
    /// Eight-bit floats.
    Fp8,
    /// The upper half of a 32-bit float.
    Bf16,
}

impl NumberFormat {
    /// The word in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nvfp4 => "nvfp4",
            Self::Mxfp4 => "mxfp4",
            Self::Int4 => "int4",
            Self::Fp8 => "fp8",
            Self::Bf16 => "bf16",
        }
    }
}

/// The usual machine around accelerators.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// What it is called.
    pub title: String,
    /// How many accelerators it has.
    #[schemars(range(min = 1))]
    pub accelerators: u32,
    /// Its main memory.
    pub memory: ByteSize,
    /// Its processor cores.
    #[schemars(range(min = 1))]
    pub cores: u32,
    /// Where the figures are from.
    pub source: String,
}

static ACCELERATOR_SCHEMA: LazyLock<serde_json::Value> = LazyLock::new(|| {
    let generator = SchemaSettings::draft2020_12().into_generator();
    generator.into_root_schema_for::<AcceleratorFile>().to_value()
});

impl AcceleratorFile {
    /// Reads and checks an accelerator file.
    pub fn parse(text: &str, file: &str) -> Result<Self, Problems> {
        let mut problems = Vec::new();
        let (tree, accelerator) = read::<Self>(text, &ACCELERATOR_SCHEMA, &mut problems);
        for problem in &mut problems {
            problem.place = problem
                .place
                .or_else(|| tree.as_ref().map(|tree| tree.place_of(&problem.at)));
        }
        match accelerator {
            Some(accelerator) if problems.is_empty() => Ok(accelerator),
            _ => Err(Problems::new(file, text, problems)),
        }
    }

    /// Whether NCCL or RCCL reaches it.
    pub const fn is_gpu(&self) -> bool {
        matches!(self.processor, Processor::Gpu)
    }
}
