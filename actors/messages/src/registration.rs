//! What an instance says about itself: who it is, what it can hold, what it holds, how busy it is.

use serde::{Deserialize, Serialize};

use crate::{BlockHash, Fingerprint, InstanceRef, NodeId, Role};

/// The record an instance publishes under a lease while it serves.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Registration {
    /// Who, in which life.
    pub instance: InstanceRef,
    /// Where it runs.
    pub node: NodeId,
    /// The generation of the plan that started it. Prefill and decode of different generations never pair.
    pub generation: u64,
    /// The served model's weights, tokenizer and arithmetic.
    pub model: Fingerprint,
    /// How it lays out a page.
    pub layout: Fingerprint,
    /// What it can hold.
    pub capacity: Capacity,
    /// Roles that run inside this instance besides its own (a decode with prefill folded in lists `prefill`).
    pub folds: Vec<Role>,
    /// Roles that must be live before it can serve: one of these lists, whole.
    pub needs: Vec<Vec<Role>>,
    /// Where carriers reach it; empty inside one process.
    pub addresses: Vec<String>,
}

/// What an instance can hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Capacity {
    /// Requests at once, running and waiting.
    pub requests: u32,
    /// KV blocks.
    pub blocks: u32,
    /// Tokens of a block.
    pub block_tokens: u32,
    /// Longest sequence in tokens.
    pub context: u32,
}

/// A change of what an instance holds. Sequence numbers start at 1 in each epoch and have no gaps; who sees a gap asks
/// the instance for a snapshot.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KvEvent {
    /// Whose blocks.
    pub instance: InstanceRef,
    /// Position in this instance's events.
    pub seq: u64,
    /// What changed.
    pub kind: KvEventKind,
}

/// What changed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum KvEventKind {
    /// These blocks are held now.
    Stored(Vec<BlockHash>),
    /// These no longer.
    Removed(Vec<BlockHash>),
    /// Exactly these are held: a snapshot, or the start.
    Snapshot(Vec<BlockHash>),
}

/// How busy an instance is, and that it makes progress.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LoadReport {
    /// Who.
    pub instance: InstanceRef,
    /// Position in this instance's reports.
    pub seq: u64,
    /// The figures.
    pub sample: SamplePoint,
}

/// The figures of one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SamplePoint {
    /// Requests that run.
    pub running: u32,
    /// Requests that wait.
    pub waiting: u32,
    /// Prompt tokens that are still to be computed.
    pub pending_tokens: u32,
    /// Blocks that running requests hold.
    pub blocks_used: u32,
    /// Blocks that only the prefix cache holds.
    pub blocks_cached: u32,
    /// Blocks in all.
    pub blocks_total: u32,
    /// Engine steps since the start of this life: progress.
    pub steps: u64,
    /// How long the oldest waiting request has waited.
    pub oldest_waiting_ms: u32,
}
