//! Pictures and sounds out of files, within bounds; and the rules for addresses that files may be fetched from.
//!
//! ```text
//! bytes ─▶ probe ──▶ format, upright size, frames          (reads headers only; what a tokenizer needs)
//! bytes ─▶ picture ─▶ RGB pixels, upright, on white         (what an encoder needs)
//! bytes ─▶ sound ──▶ one channel at the model's rate
//! url   ─▶ HostRules ─▶ Target; address ─▶ is it outside?   (what a fetcher must ask, before each connection)
//! ```
//! Everything here is a function of its arguments. Limits are compared with what a file *claims* before anything is
//! allocated for it. It knows no model, no request and no socket.
#![warn(missing_docs)]

mod address;
mod bytes;
mod error;
mod header;
mod limits;
mod pixels;
mod rules;
mod sound;

pub use address::is_outside;
pub use error::MediaError;
pub use header::{Format, Probe, probe};
pub use limits::Limits;
pub use pixels::{Picture, picture};
pub use rules::{AddressError, HostRule, HostRules, RuleError, Target};
pub use sound::{SoundProbe, probe_sound, sound};
