//! The engine of one worker: which sequences run in a step, which blocks they hold, which token comes next.
//!
//! ```text
//!  submit / abort / provide / supply / import / start ─▶ ┌────────┐ ─▶ Event (tokens, pages, ends, block changes)
//!                                                        │ Engine │
//!                                      step(now) ──────▶ └───┬────┘ ─▶ Model::forward (one ragged batch)
//! ```
//! Values in, decisions out: no thread, no clock, no socket. The host that drives it (`cluster-roles`) owns those. It knows
//! token ids, not text; block ids, not memory.
#![warn(missing_docs)]

mod budget;
mod cells;
mod collect;
mod config;
mod door;
mod engine;
mod handover;
mod history;
mod job;
mod kv;
mod media;
mod model;
mod page;
mod plan;
mod pool;
mod prefix;
mod rng;
mod rows;
mod sampler;
mod scheduler;
mod scripted;
mod sequence;
mod shelf;
mod simulated;
mod simulated_media;
mod table;

pub use budget::blocks_for;
pub use config::{Config, Counters, Stepped};
pub use engine::Engine;
pub use handover::HandoverError;
pub use job::{Event, Job, JobId, JobKind};
pub use media::{Decoded, MediaEncoder, MediaEncoderFactory, MediaInfo, MediaRules};
pub use model::{
    Batch, BlockId, Embedded, KvClass, KvKind, Model, ModelError, ModelFactory, ModelInfo, Outputs, Row, SeqId, Slice,
    Wanted,
};
pub use scripted::{Script, Scripted, ScriptedConfig, Stall, Then};
pub use simulated::{Cost, Simulated, SimulatedConfig};
pub use simulated_media::{MediaCost, SimulatedMedia, SimulatedMediaConfig};
