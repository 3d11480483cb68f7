//! By what candidates are compared.

use cluster_messages::{ActorPath, Cost};
use serde::{Deserialize, Serialize};

/// By what candidates are compared.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub enum Policy {
    /// Prompt tokens left to compute, weighed against load.
    KvAware(Weights),
    /// Requests.
    LeastLoaded,
    /// Whose turn it is.
    RoundRobin,
}

impl Policy {
    /// The policy with its usual weights.
    pub const fn kv_aware() -> Self {
        Self::KvAware(Weights::USUAL)
    }

    /// The word in decisions, files and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::KvAware(_) => "kv-aware",
            Self::LeastLoaded => "least-loaded",
            Self::RoundRobin => "round-robin",
        }
    }
}

/// What the terms of a cost are worth, in prompt tokens that have to be computed.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Weights {
    /// A prompt token to be computed.
    pub compute: f64,
    /// A prompt token whose pages only have to be moved.
    pub transfer: f64,
    /// A request that runs or waits there.
    pub request: f64,
}

impl Weights {
    /// A request is worth about the tokens it takes part in before a short answer is done: a prefix of less than this is
    /// not worth waiting behind another request. Moving a page costs about a twentieth of computing it.
    pub const USUAL: Self = Self {
        compute: 1.0,
        transfer: 0.05,
        request: 128.0,
    };
}

/// What a policy remembers between decisions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PolicyState {
    /// Whose turn it was last, for decode and prefill. A path and not a count: instances come and go.
    pub(crate) last_decode: Option<ActorPath>,
    pub(crate) last_prefill: Option<ActorPath>,
}

/// What a candidate would do with the missing part of the prompt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Missing {
    Computed,
    Received,
}

impl Policy {
    /// Fills in the sum that candidates are compared by. Whose turn it is cannot be seen from one candidate: `turn` is its
    /// distance from the last one.
    pub(crate) fn weigh(self, mut cost: Cost, missing: Missing, turn: usize) -> Cost {
        cost.total = match self {
            Self::LeastLoaded => cost.load,
            Self::RoundRobin => turn as f64,
            Self::KvAware(weights) => {
                let per_token = match missing {
                    Missing::Computed => weights.compute,
                    Missing::Received => weights.transfer,
                };
                cost.new_tokens * per_token + cost.load * weights.request
            }
        };
        cost
    }
}
