//! The roles and how many of each.

use std::{fmt, net::IpAddr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::model::KvDtype;
use crate::{ByteSize, ModelSource, Name, Span};

/// Who does the work. A role that is not listed does not exist; `tokenizer:` with nothing after it takes all defaults.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Roles {
    /// Text to tokens and back.
    pub tokenizer: Option<Tokenizer>,
    /// Chooses instances; the endpoint.
    pub router: Option<Router>,
    /// Media to embeddings.
    pub encoder: Option<Encoder>,
    /// Computes prompts.
    pub prefill: Option<Worker>,
    /// Continues token by token.
    pub decode: Option<Worker>,
    /// Keeps pages below the memory of prefill and decode.
    pub cache: Option<Cache>,
}

/// A role by name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RoleName {
    /// Text to tokens and back.
    Tokenizer,
    /// Chooses instances.
    Router,
    /// Media to embeddings.
    Encoder,
    /// Computes prompts.
    Prefill,
    /// Continues token by token.
    Decode,
    /// Keeps pages.
    Cache,
}

impl RoleName {
    /// The word in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tokenizer => "tokenizer",
            Self::Router => "router",
            Self::Encoder => "encoder",
            Self::Prefill => "prefill",
            Self::Decode => "decode",
            Self::Cache => "cache",
        }
    }
}

impl fmt::Display for RoleName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The tokenizer role.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Tokenizer {
    /// How many instances.
    #[schemars(range(min = 1, max = 1024))]
    pub replicas: u32,
    /// Runs on this node; none: anywhere.
    pub node: Option<Name>,
}

impl Default for Tokenizer {
    fn default() -> Self {
        Self {
            replicas: 1,
            node: None,
        }
    }
}

/// The router role and the HTTP endpoint.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Router {
    /// How many instances.
    #[schemars(range(min = 1, max = 1024))]
    pub replicas: u32,
    /// Runs on this node; none: anywhere.
    pub node: Option<Name>,
    /// The address the endpoint listens on; `0.0.0.0` opens it to other machines.
    pub host: IpAddr,
    /// The port of the endpoint.
    #[schemars(range(min = 1, max = 65535))]
    pub port: u16,
    /// By what an instance is chosen.
    pub policy: Policy,
}

impl Default for Router {
    fn default() -> Self {
        Self {
            replicas: 1,
            node: None,
            host: IpAddr::from([127, 0, 0, 1]),
            port: 8000,
            policy: Policy::KvAware,
        }
    }
}

/// By what an instance is chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// Fewest prompt tokens left to compute, weighed against load.
    KvAware,
    /// One after the other.
    RoundRobin,
    /// Fewest requests.
    LeastLoaded,
}

impl Policy {
    /// The word in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::KvAware => "kv-aware",
            Self::RoundRobin => "round-robin",
            Self::LeastLoaded => "least-loaded",
        }
    }
}

/// A role that computes tokens: prefill or decode.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Worker {
    /// How many instances.
    #[schemars(range(min = 1, max = 1024))]
    pub replicas: u32,
    /// Roles that run inside this one instead of apart.
    pub folds: Vec<RoleName>,
    /// Runs on this node; none: anywhere.
    pub node: Option<Name>,
    /// The accelerators of the node it runs on, counted from 0; all replicas together. None: those that are free.
    pub devices: Vec<u32>,
    /// Over how many accelerators a model is spread.
    pub parallel: Parallel,
    /// The share of each accelerator's memory this role may use; needed where roles share one.
    #[schemars(range(min = 0.01, max = 0.95))]
    pub memory_fraction: Option<f64>,
    /// Processor threads. None: an equal share of the node's cores.
    #[schemars(range(min = 1, max = 1024))]
    pub threads: Option<u32>,
    /// Where other processes reach the first replica, the next ones on the ports after it. None: allocated.
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<u16>,
    /// Requests computed in one step.
    #[schemars(range(min = 1, max = 65536))]
    pub running_max: u32,
    /// Requests waiting inside an instance; further ones are refused.
    #[schemars(range(min = 0, max = 1_048_576))]
    pub waiting_max: u32,
    /// Tokens computed in one step; longer prompts are computed in chunks.
    #[schemars(range(min = 1, max = 1_048_576))]
    pub step_tokens: u32,
    /// Guesses tokens ahead and verifies them in one step.
    pub speculation: Option<Speculation>,
    /// How this role keeps state, where it says so itself; prefill and decode must agree.
    pub kv_cache: Option<WorkerKv>,
}

impl Default for Worker {
    fn default() -> Self {
        Self {
            replicas: 1,
            folds: Vec::new(),
            node: None,
            devices: Vec::new(),
            parallel: Parallel::default(),
            memory_fraction: None,
            threads: None,
            port: None,
            running_max: 32,
            waiting_max: 256,
            step_tokens: 512,
            speculation: None,
            kv_cache: None,
        }
    }
}

/// What a role says of its own about the state it keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WorkerKv {
    /// Tokens of a page. None: as the file's `kv_cache` says.
    #[schemars(range(min = 1, max = 1024))]
    pub page_tokens: Option<u32>,
    /// How keys and values are stored. None: as the file's `kv_cache` says.
    pub dtype: Option<KvDtype>,
}

/// Over how many accelerators a model is spread, and along which lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Parallel {
    /// Each matrix is cut into this many parts.
    #[schemars(range(min = 1, max = 1024))]
    pub tensor: u32,
    /// Experts are spread over this many ranks.
    #[schemars(range(min = 1, max = 1024))]
    pub expert: u32,
    /// Attention runs in this many independent groups.
    #[schemars(range(min = 1, max = 1024))]
    pub data: u32,
    /// The tokens of a prompt are spread over this many ranks.
    #[schemars(range(min = 1, max = 1024))]
    pub sequence: u32,
}

impl Default for Parallel {
    fn default() -> Self {
        Self {
            tensor: 1,
            expert: 1,
            data: 1,
            sequence: 1,
        }
    }
}

impl Parallel {
    /// Accelerators of one replica. Experts and prompt tokens are spread over the ranks that are there anyway.
    pub const fn ranks(&self) -> u32 {
        self.tensor * self.data
    }
}

/// How tokens are guessed ahead.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Speculation {
    /// The model that guesses; none: the model's own head.
    #[serde(default)]
    pub draft: Option<ModelSource>,
    /// Tokens guessed at a time.
    #[schemars(range(min = 1, max = 64))]
    pub tokens: u32,
}

/// The encoder role.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Encoder {
    /// How many instances.
    #[schemars(range(min = 1, max = 1024))]
    pub replicas: u32,
    /// Runs on this node; none: anywhere.
    pub node: Option<Name>,
    /// The accelerators of the node it runs on, counted from 0; all replicas together. None: those that are free.
    pub devices: Vec<u32>,
    /// Over how many accelerators the towers are spread.
    pub parallel: Parallel,
    /// The share of each accelerator's memory this role may use; needed where roles share one.
    #[schemars(range(min = 0.01, max = 0.95))]
    pub memory_fraction: Option<f64>,
    /// Where other processes reach the first replica, the next ones on the ports after it. None: allocated.
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<u16>,
    /// Media waiting inside an instance; further ones are refused.
    #[schemars(range(min = 0, max = 1_048_576))]
    pub waiting_max: u32,
    /// Media encoded together.
    #[schemars(range(min = 1, max = 1024))]
    pub batch_max: u32,
    /// Main memory of an instance for embeddings of media that were seen before.
    pub cache: ByteSize,
    /// An encoder that tells of no progress for this long is left for another one.
    pub timeout: Span,
    /// What happens when no encoder answers.
    pub fallback: Fallback,
}

impl Default for Encoder {
    fn default() -> Self {
        Self {
            replicas: 1,
            node: None,
            devices: Vec::new(),
            parallel: Parallel::default(),
            memory_fraction: None,
            port: None,
            waiting_max: 256,
            batch_max: 16,
            cache: ByteSize::mib(256),
            timeout: Span::from_s(30),
            fallback: Fallback::Fail,
        }
    }
}

/// What happens when no encoder answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Fallback {
    /// The request fails with one clean error.
    Fail,
    /// Prefill encodes itself.
    Local,
}

/// The cache role.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Cache {
    /// How many instances.
    #[schemars(range(min = 1, max = 1024))]
    pub replicas: u32,
    /// Runs on this node; none: anywhere.
    pub node: Option<Name>,
}

impl Default for Cache {
    fn default() -> Self {
        Self {
            replicas: 1,
            node: None,
        }
    }
}
