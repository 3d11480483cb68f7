//! The program as its users meet it: arguments, files, exit codes, standard output and error.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod bench;
mod chat;
mod files;
mod program;
mod pull;
mod running;
mod up;
