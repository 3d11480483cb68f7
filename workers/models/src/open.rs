//! From a path to a model that runs.
//!
//! ```text
//!  path ─▶ Checkpoint ─▶ ModelSpec ─▶ Weights ─▶ Loaded ──factory(ranks)──▶ Model, Model, …
//! ```
//! Weights are repacked once for each way of dividing them among ranks, and shared. Another instance, or one that takes the
//! place of a dead one, costs threads and its blocks.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
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
    pages::HeadMap,
    shard::{Ranks, Shard},
    spec::ModelSpec,
    weights::{self, Loading},
};

/// How to run a model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Threads that repack the weights while opening, and of the instance that `Loaded::model` makes.
    pub threads: usize,
    /// How the weights that opening reads are divided. Others are read when they are asked for.
    pub ranks: Ranks,
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
            ranks: Ranks::ONE,
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
    info: ModelInfo,
    source: Source,
    /// The weights that were asked for, by the way they are divided.
    shared: Mutex<Vec<Arc<Shared>>>,
}

/// What weights are read from.
struct Source {
    path: PathBuf,
    checkpoint: Checkpoint,
    spec: ModelSpec,
    classes: Classes,
    options: Options,
    contents: Fingerprint,
}

impl fmt::Debug for Loaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loaded")
            .field("family", &self.spec.family)
            .field("facts", &self.facts)
            .field("info", &self.info)
            .finish_non_exhaustive()
    }
}

impl Loaded {
    /// Equal means: same tokens for the same input.
    pub fn fingerprint(&self) -> Fingerprint {
        self.info.fingerprint
    }

    /// What the engine will be told.
    pub fn info(&self) -> &ModelInfo {
        &self.info
    }

    /// Makes an instance with the ranks of the options, which share its threads.
    pub fn model(&self) -> Result<Box<dyn Model>, ModelError> {
        let Options { ranks, threads, .. } = self.source.options;
        let shared = self
            .shared(ranks)
            .map_err(|error| ModelError::Failed(error.to_string()))?;
        instance(&shared, threads.div_ceil(ranks.tensor))
    }

    /// Makes instances on demand, whose ranks compute with `threads` threads each; holds the weights, which are read here
    /// if nobody has asked for this way of dividing them before. Where that fails, so does every instance.
    pub fn factory(&self, ranks: Ranks, threads: usize) -> ModelFactory {
        let shared = self
            .shared(ranks)
            .map_err(|error| ModelError::Failed(error.to_string()));
        Arc::new(move || instance(shared.as_ref().map_err(Clone::clone)?, threads))
    }

    fn shared(&self, ranks: Ranks) -> Result<Arc<Shared>, OpenError> {
        let mut known = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(shared) = known.iter().find(|shared| shared.ranks == ranks) {
            return Ok(Arc::clone(shared));
        }
        let shared = Arc::new(self.source.share(ranks)?);
        known.push(Arc::clone(&shared));
        Ok(shared)
    }
}

impl Source {
    /// Reads the weights with the ranks of the options, and hashes the files meanwhile.
    fn open(
        path: &Path,
        checkpoint: Checkpoint,
        spec: ModelSpec,
        options: Options,
    ) -> Result<(Shared, Self), OpenError> {
        let mut source = Self {
            path: path.into(),
            classes: Classes::of(&spec, options.block_tokens as usize, options.kv_dtype),
            checkpoint,
            spec,
            options,
            contents: Fingerprint::of([]),
        };
        let (shared, contents) = thread::scope(|scope| {
            let hashing = scope.spawn(|| Fingerprint::of(source.checkpoint.contents()));
            let shared = source.share(options.ranks);
            (shared, hashing.join().expect("hashing bytes does not panic"))
        });
        let mut shared = shared?;
        source.contents = contents;
        shared.info = source.info();
        Ok((shared, source))
    }

    /// Reads and repacks the weights of every rank.
    fn share(&self, ranks: Ranks) -> Result<Shared, OpenError> {
        ranks.check(&self.spec)?;
        let cpu = Cpu::new(cpu_options(self.options.threads))?;
        let networks = (0..ranks.tensor).map(|rank| self.network(Shard { rank, ranks }, &cpu));
        let networks = networks.collect::<Result<Vec<_>, _>>()?;
        let kept = networks.iter().map(|network| network.heads.kv.clone()).collect();
        Ok(Shared {
            ranks,
            heads: HeadMap::new(self.spec.layers[0].attention.kv_heads, kept),
            networks,
            classes: self.classes.clone(),
            info: self.info(),
        })
    }

    fn network(&self, shard: Shard, cpu: &Cpu) -> Result<Arc<Network>, OpenError> {
        let loading = Loading {
            checkpoint: &self.checkpoint,
            spec: &self.spec,
            arithmetic: self.options.arithmetic,
            shard,
        };
        let weights = weights::load(loading, cpu).map_err(|source| OpenError::Weights {
            path: self.path.clone(),
            source,
        })?;
        Ok(Arc::new(Network::new(self.spec.clone(), weights, &self.classes, shard)))
    }

    fn info(&self) -> ModelInfo {
        ModelInfo {
            width: self.spec.hidden as u32,
            fingerprint: fingerprint(self.contents, &self.options),
            layout: self.classes.fingerprint(),
            vocabulary: self.spec.vocabulary as u32,
            context: self.spec.context as u32,
            classes: self.classes.described(),
        }
    }
}

fn instance(shared: &Arc<Shared>, threads: usize) -> Result<Box<dyn Model>, ModelError> {
    Ok(Box::new(Instance::new(Arc::clone(shared), cpu_options(threads))?))
}

fn cpu_options(threads: usize) -> CpuOptions {
    CpuOptions { threads, isa: None }
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
        facts: Facts::of(&spec, checkpoint.tensor_bytes(checkpoint.naming(&spec))),
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
    let (shared, source) = Source::open(path, checkpoint, spec, options)?;
    let weight_bytes: usize = shared.networks.iter().map(|network| network.weights.bytes()).sum();
    Ok(Loaded {
        facts: Facts::of(&source.spec, weight_bytes as u64),
        tokenizer: tokenizer(path, &source.checkpoint),
        spec: source.spec.clone(),
        info: source.info(),
        shared: Mutex::new(vec![Arc::new(shared)]),
        source,
    })
}

/// Covers the bytes of all files, hashed whole (while the weights are repacked, so that it costs little), and the two
/// options that change what a model says. Threads, block size and instruction set do not: the kernels promise equal bits
/// for those. Ranks round sums over them differently in the last bit; prefill and decode may have different ones and still
/// exchange pages, so they count as the same model.
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
