//! Inventory and topology to an immutable plan: where each instance runs, with which settings, and why.
//!
//! ```text
//! Resolved ──┐
//! Inventory ─┼─► plan ─► Plan (generation n, parent n-1) ─► diff with the parent ─► what to stop, start, replace
//! ModelFacts ┘             └ or everything that does not fit
//! ```
//! A plan leaves execution no choices. This crate knows machines and declarations; it does not know tokens, and it does
//! nothing: the node executes.
#![warn(missing_docs)]

mod build;
mod devices;
mod diff;
mod emulate;
mod facts;
mod fit;
mod inventory;
mod kv;
mod memory;
mod place;
mod plan;
mod reach;
mod render;
mod split;
mod threads;

pub use build::plan;
pub use devices::DeviceRow;
pub use diff::{Change, Diff, diff};
pub use emulate::emulate;
pub use facts::{KvClass, KvEntry, KvKind, ModelFacts, Weights};
pub use inventory::{Accelerator, Inventory, NodeInventory};
pub use kv::KvRow;
pub use memory::MemoryRow;
pub use plan::{
    CacheSettings, Device, Emulated, Emulation, EncoderSettings, Encoding, Endpoint, Instance, Passed, Plan,
    PlannedModel, Settings, WorkerSettings, role_of,
};
pub use render::{render, render_diff};
