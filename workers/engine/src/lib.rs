//! The engine of one worker: which sequences run in a step, which blocks they hold, which token comes next.
//!
//! ```text
//!  submit / abort / provide / import / start ─▶ ┌────────┐ ─▶ Event (tokens, pages, ends, block changes)
//!                                               │ Engine │
//!                             step(now) ──────▶ └───┬────┘ ─▶ Model::forward (one ragged batch)
//! ```
//! Values in, decisions out: no thread, no clock, no socket. The host that drives it (`cluster-roles`) owns those. It knows
//! token ids, not text; block ids, not memory.
#![warn(missing_docs)]

mod job;
mod model;

pub use job::{Event, Job, JobId, JobKind};
pub use model::{
    Batch, BlockId, KvClass, KvKind, Model, ModelError, ModelFactory, ModelInfo, Outputs, Row, SeqId, Slice, Wanted,
};
