//! Fetching model files into the cache folder.
//!
//! ```text
//! Artifact (name, size, sha256, sources in order) ──► Store::ensure ──► path of a verified file
//!
//! <cache>/models/<name>/<file>            the file, only ever whole and verified
//!                       <file>.verified   what was verified: path, size, time of change, sha256
//!                       <file>.lock       held while one process fetches
//!                       <file>.partial    being written; renamed when size and sha256 are right
//!                       <file>.download/  what a source keeps to go on after an interruption
//! ```
//! The size and the sha256 decide, never the source: whoever delivers the right bytes is welcome. What a model is and where
//! descriptions come from is not known here. Everything blocks; callers in an async world use a blocking thread.

mod artifact;
mod error;
mod lock;
mod progress;
mod settings;
mod shipped;
mod source;
mod store;
mod verify;

pub use artifact::{Artifact, DigestError, Sha256Digest, Source};
pub use error::{Attempt, FetchError};
pub use progress::{Bar, Lines, Progress, Silent, human_bytes};
pub use settings::{HfSettings, PipSettings};
pub use store::Store;
