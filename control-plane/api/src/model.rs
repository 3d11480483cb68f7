//! What the API speaks of. Serialised with serde they are also the output of the commands' `--json`.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A running cluster at a glance.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Status {
    /// The topology's name.
    pub name: String,
    /// The served model's names; the first is the one to use.
    pub models: Vec<String>,
    /// Where the OpenAI-compatible API listens, such as `http://127.0.0.1:8000`.
    pub endpoint: String,
    /// Time since the start.
    pub uptime_ms: u64,
    /// The generation of the plan in force.
    pub generation: u64,
    /// Whether requests are served.
    pub ready: bool,
    /// All instances, in the order of the request path.
    pub instances: Vec<Instance>,
    /// What stands in for declared hardware and models that are not here, a line each; empty when nothing does.
    pub stand_ins: Vec<String>,
}

/// How an instance is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InstanceState {
    /// Being built: loading weights, registering.
    #[default]
    Starting,
    /// Serving.
    Ready,
    /// Finishing what it has, taking nothing new.
    Draining,
    /// Waiting for its next start after a failure.
    Restarting,
    /// Ended for good.
    Stopped,
    /// Failed more often than its restart policy allows.
    Failed,
}

impl fmt::Display for InstanceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            InstanceState::Starting => "starting",
            InstanceState::Ready => "ready",
            InstanceState::Draining => "draining",
            InstanceState::Restarting => "restarting",
            InstanceState::Stopped => "stopped",
            InstanceState::Failed => "failed",
        })
    }
}

/// One replica of a role.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Instance {
    /// Its role.
    pub role: String,
    /// Role and number, such as `decode.0`.
    pub path: String,
    /// The machine it runs on.
    pub node: String,
    /// How it is.
    pub state: InstanceState,
    /// Counts its lives.
    pub epoch: u64,
    /// Starts after failures.
    pub restarts: u32,
    /// The process it runs in.
    pub pid: u32,
    /// Steps of the engine or messages handled.
    pub steps: u64,
    /// Requests being worked on.
    pub running: u32,
    /// Requests waiting for a place.
    pub waiting: u32,
    /// KV blocks, where the role holds any.
    pub blocks: Option<Blocks>,
    /// Why its last life ended.
    pub last_exit: Option<String>,
}

/// KV blocks of an instance.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Blocks {
    /// Held by requests.
    pub used: u64,
    /// Held by nobody, kept because their content may be wanted again.
    pub cached: u64,
    /// All.
    pub total: u64,
}

/// The plan in force.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct PlanView {
    /// Its generation.
    pub generation: u64,
    /// For people.
    pub text: String,
    /// For programs.
    pub json: String,
}

/// Something that happened.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Event {
    /// Grows by one with each event.
    pub sequence: u64,
    /// Milliseconds since 1970-01-01 UTC.
    pub at_unix_ms: u64,
    /// Such as `instance.restarted`.
    pub kind: String,
    /// Whom it happened to, such as `decode.0`.
    pub subject: String,
    /// In words.
    pub message: String,
}

/// The beginning of the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Drain {
    /// Requests that were in flight when it began.
    pub in_flight: u32,
    /// How long they may go on.
    pub grace_s: u32,
}
