//! Topology and model files: schema, parsing, checks, resolution.
//!
//! ```text
//!            tree            shape              check            resolve
//! YAML text ──────► tree ──────────► Topology ──────────► facts ──────────► Resolved
//!                    └ duplicate keys  └ names, types       └ what belongs     └ models found,
//!                      and places        and ranges           together           defaults filled
//! ```
//! All steps add to one list of [`Problem`]s, so that a file is corrected in one round. The structs in [`schema`] are the
//! only description of a file: the JSON Schema for editors and the check of its shape are derived from them.
//!
//! This crate knows what was declared. It does not know any machine, nor anything that happens at run time.
#![warn(missing_docs)]

mod accelerator_file;
pub mod catalogue;
mod check;
mod document;
mod extend;
pub mod model_file;
mod problem;
mod resolve;
pub mod schema;
mod shape;
mod suggest;
mod tree;
mod units;
mod unsupported;

pub use accelerator_file::{AcceleratorFile, Figure, Link, Machine, NumberFormat, Processor};
pub use catalogue::Catalogue;
pub use check::check;
pub use document::{Document, load, parse};
pub use extend::Bases;
pub use model_file::{
    Experts, Holder, HubFile, KvLayers, ModelFile, Quantization, Shape, SingleFile, Source, Split, Towers,
    WeightFormat, WeightPart, WheelMember,
};
pub use problem::{Place, Problem, Problems};
pub use resolve::{ModelOrigin, Resolved, ResolvedModel, StandIn, resolve};
pub use schema::{RoleName, Topology, json_schema};
pub use units::{ByteSize, Malformed, ModelSource, Name, Sha256, Span};
pub use unsupported::unsupported;
