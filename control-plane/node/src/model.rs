//! From a model's origin to what the roles need: a factory of running models, a tokenizer, and figures for the plan.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use cluster_engine::{Cost, ModelFactory, Scripted, Simulated, SimulatedConfig};
use cluster_messages::Fingerprint;
use cluster_models::{
    Arithmetic, GgufFile, KvDType, Loaded, Options, Ranks, TokenizerSource as Described, media::MediaOptions,
};
use cluster_plan::{KvClass, ModelFacts, Plan, Settings};
use cluster_roles::TextModel;
use cluster_text::{GgufVocabulary, JsonFiles, TextError, Tokenizer, TokenizerSource};
use cluster_topologies::{
    Resolved, RoleName,
    schema::{self, KvDtype, Parallel},
};

use crate::{inventory, media::Media, plans, probe, script::ScriptFile};

/// The longest sequence of models that have no limit of their own.
const CONTEXT_WITHOUT_WEIGHTS: u32 = 4096;
/// Control tokens of the byte vocabulary that the scripted and the simulated model speak.
const BYTE_CONTROLS: [&str; 4] = ["<|end|>", "<|system|>", "<|user|>", "<|assistant|>"];
const BYTE_TEMPLATE: &str = "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}<|end|>{% endfor %}\
                             {% if add_generation_prompt %}<|assistant|>{% endif %}";

/// Where the model of a topology lies on this machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ModelLocation {
    /// A .gguf file, or a folder with config.json and safetensors files.
    Weights(PathBuf),
    /// A script file.
    Script(PathBuf),
    /// Nowhere: the simulated model has no file.
    Simulated {
        /// Microseconds that a step takes; 0 for as fast as it goes.
        step_us: u64,
    },
}

/// Why a model cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// Its files do not make a model.
    #[error(transparent)]
    Open(#[from] cluster_models::OpenError),
    /// Its tokenizer does not work.
    #[error("the tokenizer of {path}: {reason}")]
    Tokenizer {
        /// Which model.
        path: PathBuf,
        /// Why.
        reason: TextError,
    },
    /// A file cannot be read.
    #[error("cannot read {path}: {reason}")]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        reason: io::Error,
    },
    /// A GGUF file's keys are wrong.
    #[error("{path}: {reason}")]
    Vocabulary {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        reason: cluster_models::gguf::GgufError,
    },
    /// A script file is wrong.
    #[error("{path}: {reason}")]
    Script {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The engine's own models refused.
    #[error("{0}")]
    Engine(#[from] cluster_engine::ModelError),
}

/// A model in memory.
pub struct ServedModel {
    /// Text to ids and back.
    pub tokenizer: Tokenizer,
    /// Its figures.
    pub facts: ModelFacts,
    /// Equal means: same tokens for the same input.
    pub fingerprint: Fingerprint,
    media: Option<Media>,
    source: Source,
}

enum Source {
    Weights(Box<Loaded>),
    Own(ModelFactory),
}

impl ServedModel {
    /// Loads the model of `topology` from `location`.
    pub fn load(topology: &Resolved, location: &ModelLocation) -> Result<Self, ModelError> {
        match location {
            ModelLocation::Weights(path) => {
                let media = media_of_weights(topology, path)?;
                let served = with_weights(path, options(topology))?;
                // Its file knows parts that cannot be told from weights in memory.
                let described = ModelFacts::of_origin(plans::served_model(topology));
                let facts = described.map_or(served.facts.clone(), |file| ModelFacts {
                    weights: file.weights,
                    experts: file.experts,
                    towers: file.towers,
                    ..served.facts.clone()
                });
                Ok(Self { media, facts, ..served })
            }
            ModelLocation::Script(path) => scripted(topology, path),
            ModelLocation::Simulated { step_us } => simulated(topology, *step_us),
        }
    }

    /// Loads the weights at `path` with the settings that a topology has unless it says otherwise.
    pub fn of_weights(path: &Path) -> Result<Self, ModelError> {
        with_weights(path, usual_options())
    }

    /// Builds instances of one rank that compute with `threads` threads each. They share the weights.
    pub(crate) fn factory(&self, threads: u32) -> ModelFactory {
        self.source.factory(Parallel::default(), threads)
    }

    /// The model as workers see it, and as the tokenizer of `plan` sees it.
    pub(crate) fn into_parts(self, plan: &Plan) -> (Factories, TextModel) {
        let block_tokens = plan.instances.iter().find_map(|instance| match &instance.settings {
            Settings::Worker(worker) => Some(worker.block_tokens),
            _ => None,
        });
        let text = TextModel {
            tokenizer: self.tokenizer,
            context: plan.model.context,
            fingerprint: self.fingerprint,
            block_tokens: block_tokens.expect("every plan has a worker"),
            media: self.media.as_ref().map(Media::measure),
        };
        let factories = Factories {
            source: self.source,
            media: self.media,
        };
        (factories, text)
    }
}

/// Makes running models.
pub(crate) struct Factories {
    source: Source,
    media: Option<Media>,
}

impl Factories {
    /// Builds instances spread over ranks that compute with `threads` threads each. They share the weights.
    pub(crate) fn spread(&self, parallel: Parallel, threads: u32) -> ModelFactory {
        self.source.factory(parallel, threads)
    }

    /// How its media are encoded; none when it takes text only, or nobody here encodes.
    pub(crate) fn media(&self) -> Option<&Media> {
        self.media.as_ref()
    }
}

impl Source {
    fn factory(&self, parallel: Parallel, threads: u32) -> ModelFactory {
        match self {
            Source::Weights(loaded) => loaded.factory(ranks(parallel), threads as usize),
            Source::Own(factory) => factory.clone(),
        }
    }
}

fn ranks(parallel: Parallel) -> Ranks {
    Ranks {
        tensor: parallel.tensor as usize,
        expert: parallel.expert as usize,
        sequence: parallel.sequence as usize,
    }
}

/// All cores repack the weights; how many compute is said for each instance.
fn usual_options() -> Options {
    Options::new(inventory::cores() as usize)
}

fn options(topology: &Resolved) -> Options {
    Options {
        arithmetic: match topology.model.arithmetic {
            schema::Arithmetic::Int16 => Arithmetic::Int16,
            schema::Arithmetic::Int8 => Arithmetic::Int8,
            schema::Arithmetic::Exact => Arithmetic::Exact,
        },
        kv_dtype: match plans::kv_dtype(topology) {
            KvDtype::F16 => KvDType::F16,
            KvDtype::Bf16 => KvDType::BF16,
            KvDtype::F32 => KvDType::F32,
            KvDtype::Fp8 => KvDType::Fp8,
        },
        block_tokens: topology.kv_cache.page_tokens,
        // A stand-in has a context of its own.
        context_max: topology.model.context.filter(|_| !topology.needs_hardware()),
        ..usual_options()
    }
}

/// What sequences of a loaded model keep. The model tells bytes; layers follow from them.
fn classes(loaded: &Loaded, dtype: KvDType) -> Vec<KvClass> {
    let (heads, head_dim) = (loaded.facts.kv_heads, loaded.facts.head_dim);
    let entry_bytes = 2 * heads * head_dim * dtype.bytes() as u32;
    let class = |class: &cluster_engine::KvClass| {
        let layers = class.block_bytes as u32 / class.block_tokens / entry_bytes.max(1);
        match class.kind {
            cluster_engine::KvKind::Window { tokens } => KvClass::window(tokens, layers, heads, head_dim),
            _ => KvClass::full(layers, heads, head_dim),
        }
    };
    loaded.info().classes.iter().map(class).collect()
}

fn with_weights(path: &Path, options: Options) -> Result<ServedModel, ModelError> {
    let kv_dtype = options.kv_dtype;
    let loaded = cluster_models::open(path, options)?;
    let source = match &loaded.tokenizer {
        Described::Gguf(file) => {
            let vocabulary = vocabulary(file);
            TokenizerSource::Vocabulary(vocabulary.map_err(|reason| ModelError::Vocabulary {
                path: path.into(),
                reason,
            })?)
        }
        Described::Folder(folder) => TokenizerSource::Json(json_files(folder)?),
    };
    let tokenizer = Tokenizer::new(source).map_err(|reason| ModelError::Tokenizer {
        path: path.into(),
        reason,
    })?;
    let facts = ModelFacts {
        weights: Vec::new(),
        experts: None,
        classes: classes(&loaded, kv_dtype),
        towers: None,
        weights_bytes: loaded.facts.weight_bytes,
        context: loaded.info().context,
        layers: loaded.facts.layers,
        heads: loaded.facts.heads,
        kv_heads: loaded.facts.kv_heads,
        head_dim: loaded.facts.head_dim,
        width: loaded.facts.hidden,
        vocabulary: loaded.facts.vocabulary,
    };
    Ok(ServedModel {
        tokenizer,
        facts,
        fingerprint: loaded.fingerprint(),
        media: None,
        source: Source::Weights(Box::new(loaded)),
    })
}

/// The towers of a model, where the topology has somebody encode.
fn media_of_weights(topology: &Resolved, path: &Path) -> Result<Option<Media>, ModelError> {
    let is_inside = |worker: &schema::Worker| worker.folds.contains(&RoleName::Encoder);
    let encodes = topology.encoder.is_some() || topology.workers().any(|(_, worker)| is_inside(worker));
    if !encodes || !path.is_dir() {
        return Ok(None);
    }
    let (threads, is_emulated) = (usual_options().threads, topology.needs_hardware());
    let open = move |path: &Path, ranks: u32| {
        let options = MediaOptions {
            // Under emulation a rank has one thread, as the ranks of the language model.
            threads: if is_emulated {
                1
            } else {
                threads.div_ceil(ranks as usize)
            },
            ranks: ranks as usize,
        };
        cluster_models::media::open(path, options)
    };
    let apart = topology.encoder.as_ref().map_or(1, |encoder| encoder.parallel.tensor);
    let Some(model) = open(path, apart)? else {
        return Ok(None);
    };
    let (rules, path) = (model.rules(), path.to_owned());
    // Whoever encodes with as many ranks shares the weights; others, such as a prefill that helps out, load their own.
    let factory = move |ranks: u32| {
        if ranks == apart {
            return model.factory();
        }
        match open(&path, ranks) {
            Ok(Some(other)) => other.factory(),
            Ok(None) => model.factory(),
            Err(error) => {
                let error = cluster_engine::ModelError::Failed(error.to_string());
                Arc::new(move || Err(error.clone()))
            }
        }
    };
    Ok(Some(Media::new(rules, &topology.limits.media, Arc::new(factory))))
}

/// The `tokenizer.*` keys of a GGUF file.
fn vocabulary(file: &GgufFile) -> Result<GgufVocabulary, cluster_models::gguf::GgufError> {
    let text = |key| file.get::<&str>(key).map(|value| value.map(str::to_owned));
    let texts = |key| {
        file.get::<Vec<&str>>(key)
            .map(|all| all.unwrap_or_default().into_iter().map(str::to_owned).collect())
    };
    Ok(GgufVocabulary {
        model: file.require::<&str>("tokenizer.ggml.model")?.to_owned(),
        pre: text("tokenizer.ggml.pre")?,
        tokens: texts("tokenizer.ggml.tokens")?,
        merges: texts("tokenizer.ggml.merges")?,
        scores: file.get("tokenizer.ggml.scores")?.unwrap_or_default(),
        token_types: file.get("tokenizer.ggml.token_type")?.unwrap_or_default(),
        bos: file.get("tokenizer.ggml.bos_token_id")?,
        eos: file.get("tokenizer.ggml.eos_token_id")?,
        eot: file.get("tokenizer.ggml.eot_token_id")?,
        eom: file.get("tokenizer.ggml.eom_token_id")?,
        unknown: file.get("tokenizer.ggml.unknown_token_id")?,
        padding: file.get("tokenizer.ggml.padding_token_id")?,
        add_bos: file.get("tokenizer.ggml.add_bos_token")?,
        add_space_prefix: file.get("tokenizer.ggml.add_space_prefix")?,
        chat_template: text("tokenizer.chat_template")?,
    })
}

fn json_files(folder: &Path) -> Result<JsonFiles, ModelError> {
    let read = |name: &str| {
        let path = folder.join(name);
        fs::read(&path).map_err(|reason| ModelError::Read { path, reason })
    };
    let optional = |name: &str| match read(name) {
        Err(ModelError::Read { reason, .. }) if reason.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    };
    let template = optional("chat_template.jinja")?;
    Ok(JsonFiles {
        tokenizer: read("tokenizer.json")?,
        tokenizer_config: optional("tokenizer_config.json")?,
        chat_template: template.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
        generation_config: optional("generation_config.json")?,
    })
}

fn byte_tokenizer(path: &Path) -> Result<Tokenizer, ModelError> {
    let source = TokenizerSource::Vocabulary(GgufVocabulary::of_bytes(&BYTE_CONTROLS, BYTE_TEMPLATE));
    Tokenizer::new(source).map_err(|reason| ModelError::Tokenizer {
        path: path.into(),
        reason,
    })
}

fn scripted(topology: &Resolved, path: &Path) -> Result<ServedModel, ModelError> {
    let text = fs::read_to_string(path).map_err(|reason| ModelError::Read {
        path: path.into(),
        reason,
    })?;
    let tokenizer = byte_tokenizer(path)?;
    let context = topology.model.context.unwrap_or(CONTEXT_WITHOUT_WEIGHTS);
    let wrong = |reason| ModelError::Script {
        path: path.into(),
        reason,
    };
    let file = ScriptFile::parse(&text).map_err(wrong)?;
    let config = file
        .encode(&tokenizer, context, topology.kv_cache.page_tokens)
        .map_err(wrong)?;
    let model = Scripted::new(config)?.with_probe(probe::PROMPT.to_vec());
    without_weights(tokenizer, context, model)
}

fn simulated(topology: &Resolved, step_us: u64) -> Result<ServedModel, ModelError> {
    let tokenizer = byte_tokenizer(Path::new("simulated"))?;
    let context = topology.model.context.unwrap_or(CONTEXT_WITHOUT_WEIGHTS);
    let vocabulary = tokenizer.vocabulary_len() as u32;
    let block_tokens = topology.kv_cache.page_tokens;
    let model = Simulated::new(SimulatedConfig {
        vocabulary,
        context,
        block_tokens,
        seed: 0,
        cost: Cost {
            step_us,
            ..Cost::default()
        },
    });
    without_weights(tokenizer, context, model)
}

fn without_weights<M>(tokenizer: Tokenizer, context: u32, model: M) -> Result<ServedModel, ModelError>
where
    M: cluster_engine::Model + Clone + Sync + 'static,
{
    let fingerprint = model.info().fingerprint;
    let facts = ModelFacts::without_weights(context, tokenizer.vocabulary_len() as u32);
    let factory: ModelFactory = Arc::new(move || Ok(Box::new(model.clone())));
    Ok(ServedModel {
        tokenizer,
        facts,
        fingerprint,
        media: None,
        source: Source::Own(factory),
    })
}
