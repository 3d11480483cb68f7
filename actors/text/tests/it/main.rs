//! The crate through its door, on the vocabularies in `tests/fixtures`.
#![expect(
    clippy::unwrap_used,
    reason = "a fixture that cannot be read fails the test that asks for it"
)]

mod answers;
mod chat;
mod encode;
mod fixtures;
mod injection;
mod media;
mod stream;
