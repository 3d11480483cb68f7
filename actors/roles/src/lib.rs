//! The role actors, their supervisor, and the thread that drives an engine.
//!
//! ```text
//!  Supervisor ──starts, restarts──▶ tokenizer · router · encoder · prefill · decode · cache     (one file per role)
//!       └── Board: what everybody may see of them
//!  ClusterFrontend ─text─▶ tokenizer ─media──▶ encoder ◀─fetch─┐                          (streams of the fabric)
//!                                   └─tokens─▶ decode ─▶ prefill ┘
//! ```
//! An actor is the door and the owner of a role's life; the work of each request is a task of its own behind it, and the
//! arithmetic is on the engine's thread. This crate knows one request and its peers; it does not know machines, files or tensors.
#![warn(missing_docs)]

mod cache;
mod decode;
mod encoder;
mod engine_host;
mod failure;
mod feature_store;
#[cfg(test)]
mod fixture;
mod frontend;
mod host;
mod media;
mod media_engine;
#[cfg(test)]
mod media_fixture;
mod page_store;
mod peers;
mod prefill;
mod protocol;
mod restart;
mod router;
mod service;
mod status;
mod subjects;
mod supervisor;
mod tasks;
mod tokenizer;
mod worker;

pub use cache::CacheSpec;
pub use decode::Decode;
pub use encoder::EncoderSpec;
pub use frontend::ClusterFrontend;
pub use host::Host;
pub use media::{EncoderSettings, Measured, MediaDecode, MediaMeasure, MediaPolicy, OwnedMedium};
pub use peers::Peers;
pub use prefill::Prefiller;
pub use protocol::{EncodeFrame, EncodeProtocol, FeaturesProtocol, GenerateProtocol, PrefillProtocol, TextProtocol};
pub use restart::Policy as RestartPolicy;
pub use router::RouterSpec;
pub use status::{Board, Exit, Instance, State};
pub use supervisor::{ExitNote, Life, RoleSpec, Supervisor};
pub use tokenizer::{TextModel, TokenizerSpec};
pub use worker::{WorkerParts, WorkerRole, WorkerSettings, WorkerSpec};

/// How to start a decode instance.
pub type DecodeSpec = WorkerSpec<Decode>;
/// How to start a prefill instance.
pub type PrefillSpec = WorkerSpec<Prefiller>;
