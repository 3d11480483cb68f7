//! Whole checkpoints against recorded outputs, and what the engine relies on: a row depends on its sequence alone.
#![expect(clippy::unwrap_used, reason = "a helper of a test may fail it")]

mod fixtures;
mod golden;
mod heldout;
mod independence;
mod layouts;
mod media;
mod muse;
mod opening;
mod quantized;
mod ranks;
mod sequences;
