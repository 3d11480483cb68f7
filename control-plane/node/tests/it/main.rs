//! A whole cluster of one node, with the simulated model, on free ports.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod endings;
mod sandbox;
mod scripts;
