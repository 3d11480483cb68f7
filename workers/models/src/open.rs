//! From a path to a model that runs.
//!
//! ```text
//!  path ─▶ Checkpoint ─▶ ModelSpec ─▶ Weights ─▶ Loaded ──factory()──▶ Model, Model, …
//! ```
//! Weights are repacked once and shared. Another instance, or one that takes the place of a dead one, costs a thread pool
//! and its blocks.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
};

use cluster_engine::{Model, ModelError, ModelFactory, ModelInfo};
use cluster_kernels::{Arithmetic, Cpu, CpuOptions, KvDType};
use cluster_messages::Fingerprint;

use crate::{
    checkpoint::Checkpoint,
    classes::Classes,
    decoder::Network,
    error::OpenError,
    facts::Facts,
    gguf::GgufFile,
    instance::{Instance, Shared},
    spec::ModelSpec,
    weights::Weights,
};

/// How to run a model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Threads that repack the weights while opening, and of the instance that `Loaded::model` makes.
    pub threads: usize,
    /// How products with quantized weights are computed.
    pub arithmetic: Arithmetic,
    /// How keys and values are stored.
    pub kv_dtype: KvDType,
    /// Tokens of a KV block, a multiple of 16.
    pub block_tokens: u32,
    /// A shorter context than the model's own.
    pub context_max: Option<u32>,
}

impl Options {
    /// The settings for serving: integer products where the format has them, keys and values in 16 bits.
    pub fn new(threads: usize) -> Self {
        Self {
            threads,
            arithmetic: Arithmetic::Int16,
            kv_dtype: KvDType::F16,
            block_tokens: 16,
            context_max: None,
        }
    }

    fn check(&self) -> Result<(), OpenError> {
        let wrong = |field, got: String, rule: &str| {
            Err(OpenError::Options {
                field,
                got,
                rule: rule.into(),
            })
        };
        if self.threads == 0 {
            return wrong("threads", "0".into(), "at least 1 is needed");
        }
        if self.block_tokens == 0 || !self.block_tokens.is_multiple_of(16) {
            return wrong(
                "block_tokens",
                self.block_tokens.to_string(),
                "it must be a multiple of 16",
            );
        }
        if self.context_max == Some(0) {
            return wrong("context_max", "0".into(), "at least 1 token is needed");
        }
        Ok(())
    }
}

/// Where the tokenizer of a model is described.
#[derive(Clone, Debug)]
pub enum TokenizerSource {
    /// In the `tokenizer.*` metadata of the GGUF file.
    Gguf(Arc<GgufFile>),
    /// In tokenizer.json and tokenizer_config.json of this folder.
    Folder(PathBuf),
}

/// A model whose weights are in memory.
pub struct Loaded {
    /// What it is.
    pub spec: ModelSpec,
    /// Its sizes.
    pub facts: Facts,
    /// Where its tokenizer is described.
    pub tokenizer: TokenizerSource,
    shared: Arc<Shared>,
}

impl fmt::Debug for Loaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loaded")
            .field("family", &self.spec.family)
            .field("facts", &self.facts)
            .field("info", &self.shared.info)
            .finish_non_exhaustive()
    }
}

impl Loaded {
    /// Equal means: same tokens for the same input.
    pub fn fingerprint(&self) -> Fingerprint {
        self.shared.info.fingerprint
    }

    /// What the engine will be told.
    pub fn info(&self) -> &ModelInfo {
        &self.shared.info
    }

    /// Makes an instance with the threads of the options.
    pub fn model(&self) -> Result<Box<dyn Model>, ModelError> {
        instance(&self.shared, self.shared.cpu)
    }

    /// Makes instances on demand, which compute with `threads` threads each; holds the weights.
    pub fn factory(&self, threads: usize) -> ModelFactory {
        let shared = Arc::clone(&self.shared);
        let cpu = CpuOptions { threads, ..shared.cpu };
        Arc::new(move || instance(&shared, cpu))
    }
}

fn instance(shared: &Arc<Shared>, cpu: CpuOptions) -> Result<Box<dyn Model>, ModelError> {
    let instance = Instance::new(Arc::clone(shared), cpu).map_err(|error| ModelError::Failed(error.to_string()))?;
    Ok(Box::new(instance))
}

/// What a model is and how large, without reading its weights.
#[derive(Clone, Debug)]
pub struct Inspected {
    /// What it is.
    pub spec: ModelSpec,
    /// Its sizes; `weight_bytes` are those of the tensors in the files.
    pub facts: Facts,
    /// Where its tokenizer is described.
    pub tokenizer: TokenizerSource,
}

/// Reads the description of a model: a .gguf file, or a folder with config.json and safetensors files.
pub fn inspect(path: &Path) -> Result<Inspected, OpenError> {
    let (checkpoint, spec) = Checkpoint::open(path)?;
    Ok(Inspected {
        facts: Facts::of(&spec, checkpoint.tensor_bytes()),
        tokenizer: tokenizer(path, &checkpoint),
        spec,
    })
}

/// Opens a model: a .gguf file, or a folder with config.json and safetensors files.
pub fn open(path: &Path, options: Options) -> Result<Loaded, OpenError> {
    options.check()?;
    let (checkpoint, mut spec) = Checkpoint::open(path)?;
    if let Some(context_max) = options.context_max {
        spec.context = spec.context.min(context_max as usize);
    }
    let cpu_options = CpuOptions {
        threads: options.threads,
        isa: None,
    };
    let cpu = Cpu::new(cpu_options)?;
    let (weights, contents) = thread::scope(|scope| {
        let hashing = scope.spawn(|| Fingerprint::of(checkpoint.contents()));
        let weights = Weights::load(&checkpoint, &spec, &cpu, options.arithmetic);
        (weights, hashing.join().expect("hashing bytes does not panic"))
    });
    let weights = weights.map_err(|source| OpenError::Weights {
        path: path.into(),
        source,
    })?;
    let classes = Classes::of(&spec, options.block_tokens as usize, options.kv_dtype);
    let info = ModelInfo {
        width: spec.hidden as u32,
        fingerprint: fingerprint(contents, &options),
        layout: classes.fingerprint(),
        vocabulary: spec.vocabulary as u32,
        context: spec.context as u32,
        classes: classes.described(),
    };
    Ok(Loaded {
        facts: Facts::of(&spec, weights.bytes() as u64),
        tokenizer: tokenizer(path, &checkpoint),
        shared: Arc::new(Shared {
            network: Network::new(spec.clone(), weights, &classes),
            classes,
            info,
            cpu: cpu_options,
        }),
        spec,
    })
}

/// Covers the bytes of all files, hashed whole (while the weights are repacked, so that it costs little), and the two
/// options that change results. Threads, block size and instruction set do not: the kernels promise equal bits for those.
fn fingerprint(contents: Fingerprint, options: &Options) -> Fingerprint {
    let arithmetic = format!("{:?} {:?}", options.arithmetic, options.kv_dtype);
    Fingerprint::of([&contents.0.to_le_bytes(), arithmetic.as_bytes()])
}

fn tokenizer(path: &Path, checkpoint: &Checkpoint) -> TokenizerSource {
    match checkpoint {
        Checkpoint::Gguf(file) => TokenizerSource::Gguf(Arc::clone(file)),
        Checkpoint::Folder { .. } => TokenizerSource::Folder(path.into()),
    }
}
