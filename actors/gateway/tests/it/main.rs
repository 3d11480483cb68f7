//! The gateway over HTTP, in front of a frontend that plays scripts.
#![expect(clippy::unwrap_used, reason = "what fails in a helper of the tests fails the test")]

mod bodies;
mod harness;
mod lifecycle;
mod media;
mod streams;
mod time;
mod tracing;
