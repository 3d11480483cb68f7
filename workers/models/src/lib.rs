//! Model files to runnable models.
//!
//! ```text
//!  model.gguf                    ┌──────┐   ┌─────────┐   ┌─────────┐
//!  config.json + *.safetensors ─▶│ spec │──▶│ weights │──▶│ decoder │◀─▶ cluster_engine::Model
//!                                └──────┘   └─────────┘   └─────────┘
//! ```
//! [`open`] reads a model and gives a factory of instances that share its weights; [`inspect`] gives its sizes without
//! reading the weights. A model is described as a table of layers ([`ModelSpec`]) by one of the two readers; nothing
//! behind that table knows a model's name. This crate knows files, tensors and block ids. It does not know requests,
//! sequences, text, or which block belongs to whom: the engine decides that.
#![warn(missing_docs)]

mod checkpoint;
mod classes;
mod crew;
mod decoder;
mod error;
mod facts;
pub mod gguf;
mod instance;
mod mapping;
pub mod media;
mod names;
mod open;
mod pages;
mod quantized;
mod ragged;
mod rank;
mod safetensors;
mod shard;
pub mod spec;
mod steps;
mod weights;

pub use cluster_kernels::{Arithmetic, KvDType};
pub use error::OpenError;
pub use facts::Facts;
pub use gguf::GgufFile;
pub use open::{Inspected, Loaded, Options, TokenizerSource, inspect, open};
pub use safetensors::SafetensorsError;
pub use shard::{Ranks, RanksError};
pub use spec::{ModelSpec, SpecError};
pub use weights::WeightsError;
