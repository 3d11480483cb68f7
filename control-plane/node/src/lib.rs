//! One machine: what it has, which plan it executes, and the cluster that runs on it.
//!
//! ```text
//! Resolved ─┐
//! model ────┼─▶ start ─▶ plan ─▶ supervisor + roles + gateway + control-plane API ─▶ Running
//! inventory ┘
//! ```
//! This is where models meet roles: below, workers do not know actors and actors do not know weights.
#![warn(missing_docs)]

mod actors;
mod bench;
mod control;
mod doors;
mod entrance;
mod events;
mod inventory;
mod media;
mod model;
mod plans;
mod probe;
mod running;
mod script;
mod specs;
mod start;

pub use bench::{BenchError, BenchOptions, Machine, Measured, bench, machine};
pub use inventory::local as local_inventory;
pub use model::{ModelError, ModelLocation, ServedModel};
pub use plans::{declared_plan, executed_plan, missing_hardware, served_model};
pub use running::{Cut, End, Running};
pub use start::{Options, StartError, start};
