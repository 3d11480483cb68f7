//! The engine through its public door, on models without weights.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cache;
mod equality;
mod host;
mod limits;
mod media;
mod scores;
mod scripted;
mod split;
mod turns;
mod windows;
