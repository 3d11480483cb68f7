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
mod diff;
mod facts;
mod inventory;
mod memory;
mod place;
mod plan;
mod render;
mod threads;

pub use build::plan;
pub use diff::{Change, Diff, diff};
pub use facts::ModelFacts;
pub use inventory::{Accelerator, Inventory, NodeInventory};
pub use memory::MemoryRow;
pub use plan::{CacheSettings, Endpoint, Instance, Passed, Plan, PlannedModel, Settings, WorkerSettings, role_of};
pub use render::{render, render_diff};
