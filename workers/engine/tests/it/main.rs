//! The engine through its public door, on models without weights.

mod equality;
mod host;
