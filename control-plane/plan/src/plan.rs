//! The plan: what runs where, so specific that execution has no choices left.

use std::net::IpAddr;

use cluster_messages::{ActorPath, NodeId, Role};
use cluster_topologies::{
    ModelOrigin, RoleName, Span,
    schema::{Arithmetic, Fallback, KvDtype, Limits, Links, Parallel, Policy, Restart},
};
use serde::{Deserialize, Serialize};

use crate::{DeviceRow, KvRow, MemoryRow};

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
    /// Who turns media into embeddings.
    pub encoding: Encoding,
    /// What stands in for what, when hardware is emulated.
    pub emulation: Option<Emulation>,
    /// In the order in which they start.
    pub instances: Vec<Instance>,
    /// What needs how much main memory where.
    pub memory: Vec<MemoryRow>,
    /// What needs how much memory of which accelerator.
    pub devices: Vec<DeviceRow>,
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
    /// Over how many ranks its model is spread.
    pub parallel: Parallel,
    /// Processor threads of each rank for computing; 0: it computes nothing.
    pub threads: u32,
    /// The accelerator of each rank, in their order; none: ranks compute on processor cores.
    pub devices: Vec<Device>,
    /// What its role needs to know.
    pub settings: Settings,
    /// Roles that must be live before it can serve: one of these lists, whole. None: it serves alone.
    pub needs: Vec<Vec<Role>>,
    /// Why it runs here and like this.
    pub reasons: Vec<String>,
}

/// An accelerator of a machine.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Device {
    /// The machine.
    pub node: NodeId,
    /// Its number there.
    pub index: u32,
}

/// Who turns media into embeddings.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Encoding {
    /// Nobody: requests with media are refused.
    None,
    /// The instances that have the encoder role among their `folds`.
    Inside(EncoderSettings),
    /// Instances of the encoder role.
    Apart {
        /// How they work; also how prefill does where it falls back to itself.
        settings: EncoderSettings,
        /// What happens when none answers.
        fallback: Fallback,
    },
}

/// What stands in for hardware and a model that are not here.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Emulation {
    /// The declared model.
    pub model: String,
    /// The model that is served instead.
    pub stand_in: String,
    /// The declared accelerators.
    pub accelerators: Vec<Emulated>,
    /// Processor ranks that stand in for them, in all.
    pub ranks: u32,
    /// What is smaller than declared, and why.
    pub notes: Vec<String>,
}

impl Emulation {
    /// What stands in for what, a line each.
    pub fn lines(&self) -> Vec<String> {
        let count: u32 = self.accelerators.iter().map(|one| one.count).sum();
        let each = |one: &Emulated| match one.count {
            0 => format!("{} (processor cores)", one.node),
            count => format!("{count} x {} of {}", one.kind, one.node),
        };
        let hardware: Vec<String> = self.accelerators.iter().map(each).collect();
        let mut lines = vec![
            format!(
                "{}: {} ranks on this processor{}",
                hardware.join(", "),
                self.ranks,
                if count > 0 && self.ranks > count {
                    ", as roles share accelerators"
                } else {
                    ""
                }
            ),
            format!("{}: {}", self.model, self.stand_in),
        ];
        lines.extend(self.notes.iter().cloned());
        lines
    }
}

/// Accelerators of a declared node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Emulated {
    /// The declared node.
    pub node: String,
    /// Their kind.
    pub kind: String,
    /// How many.
    pub count: u32,
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
    /// How media are encoded.
    Encoder(EncoderSettings),
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
    /// The same with their sizes on a rank.
    pub classes: Vec<KvRow>,
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

/// How media are encoded.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct EncoderSettings {
    /// Media waiting inside; further ones are refused.
    pub waiting_max: u32,
    /// Media encoded together.
    pub batch_max: u32,
    /// Main memory for embeddings of media that were seen before.
    pub cache_bytes: u64,
    /// After this a medium that is not encoded yet is given up.
    pub timeout: Span,
}

impl From<&cluster_topologies::schema::Encoder> for EncoderSettings {
    fn from(declared: &cluster_topologies::schema::Encoder) -> Self {
        Self {
            waiting_max: declared.waiting_max,
            batch_max: declared.batch_max,
            cache_bytes: declared.cache.bytes(),
            timeout: declared.timeout,
        }
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
