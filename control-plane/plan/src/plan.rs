//! The plan: what runs where, so specific that execution has no choices left.

use std::net::IpAddr;

use cluster_messages::{ActorPath, NodeId, Role};
use cluster_topologies::{
    ModelOrigin, RoleName,
    schema::{Arithmetic, KvDtype, Limits, Links, Policy, Restart},
};
use serde::{Deserialize, Serialize};

use crate::MemoryRow;

/// What is to run. Never changed: another plan has this one as its parent.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// The topology's name.
    pub topology: String,
    /// Counted from 1. An instance of an older generation never works with one of a newer.
    pub generation: u64,
    /// The plan this one replaces.
    pub parent: Option<u64>,
    /// What is served.
    pub model: PlannedModel,
    /// Where clients reach it.
    pub endpoint: Endpoint,
    /// What is refused at the door.
    pub limits: Limits,
    /// How state moves.
    pub links: Links,
    /// What happens after an instance died.
    pub restart: Restart,
    /// In the order in which they start.
    pub instances: Vec<Instance>,
    /// What needs how much memory where.
    pub memory: Vec<MemoryRow>,
    /// The checks this plan passed, with their figures.
    pub checks: Vec<Passed>,
}

impl Plan {
    /// The instances of one role.
    pub fn of_role(&self, role: Role) -> impl Iterator<Item = &Instance> {
        self.instances.iter().filter(move |instance| instance.path.role == role)
    }

    /// The instance at `path`.
    pub fn instance(&self, path: ActorPath) -> Option<&Instance> {
        self.instances.iter().find(|instance| instance.path == path)
    }
}

/// The model as every instance loads it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PlannedModel {
    /// Where it comes from.
    pub origin: ModelOrigin,
    /// The names clients may ask for; the first is the one in answers.
    pub served_names: Vec<String>,
    /// The longest sequence in tokens.
    pub context: u32,
    /// How quantized weights are multiplied.
    pub arithmetic: Arithmetic,
    /// How keys and values are stored.
    pub kv_dtype: KvDtype,
}

/// Where clients reach a cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Endpoint {
    /// The address listened on.
    pub host: IpAddr,
    /// The port listened on.
    pub port: u16,
}

/// One actor to run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Instance {
    /// Its stable name.
    pub path: ActorPath,
    /// Where it runs.
    pub node: NodeId,
    /// Roles that run inside it besides its own.
    pub folds: Vec<Role>,
    /// Its processor threads for computing; 0: it computes nothing.
    pub threads: u32,
    /// Its accelerators on the node.
    pub devices: Vec<u32>,
    /// What its role needs to know.
    pub settings: Settings,
    /// Roles that must be live before it can serve: one of these lists, whole. None: it serves alone.
    pub needs: Vec<Vec<Role>>,
    /// Why it runs here and like this.
    pub reasons: Vec<String>,
}

/// What a role needs to know.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Settings {
    /// Nothing of its own.
    Tokenizer,
    /// By what an instance is chosen.
    Router {
        /// The policy.
        policy: Policy,
    },
    /// How prefill or decode computes.
    Worker(WorkerSettings),
    /// What a cache keeps.
    Cache(CacheSettings),
}

/// How prefill or decode computes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WorkerSettings {
    /// Tokens of a block.
    pub block_tokens: u32,
    /// How many blocks there are of each class of state, in the model's order; the first class counts tokens.
    pub blocks: Vec<u32>,
    /// Requests computed in one step.
    pub running_max: u32,
    /// Requests waiting inside.
    pub waiting_max: u32,
    /// Tokens computed in one step.
    pub step_tokens: u32,
    /// Whether prefixes of earlier requests are reused.
    pub prefix_reuse: bool,
    /// Whether pages that no longer fit are offered to the cache role.
    pub offload: bool,
}

impl WorkerSettings {
    /// Tokens whose state fits.
    pub fn kv_tokens(&self) -> u64 {
        self.blocks.first().map_or(0, |blocks| u64::from(*blocks)) * u64::from(self.block_tokens)
    }
}

/// What a cache keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CacheSettings {
    /// Main memory for pages.
    pub host_bytes: u64,
}

/// A check that was passed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Passed {
    /// Its name.
    pub rule: String,
    /// The figures.
    pub detail: String,
}

/// The role that a topology's word means.
pub const fn role_of(name: RoleName) -> Role {
    match name {
        RoleName::Tokenizer => Role::Tokenizer,
        RoleName::Router => Role::Router,
        RoleName::Encoder => Role::Encoder,
        RoleName::Prefill => Role::Prefill,
        RoleName::Decode => Role::Decode,
        RoleName::Cache => Role::Cache,
    }
}
