//! The binary `cluster`: reads the command line and the environment, and hands over.
//!
//! ```text
//! cluster COMMAND ──► commands/COMMAND.rs ──┬─► files: topologies, check, plan, pull, bench, schema
//!                                           ├─► a running cluster, by gRPC: status, trace, events, down
//!                                           ├─► its endpoint, by HTTP: chat
//!                                           └─► a node in this process: up
//! ```
//! Environment variables are read here and nowhere else in the workspace, see `environment.rs`.

mod arguments;
mod commands;
mod environment;
mod failure;
mod model_file;
mod openai;
mod runs;
mod sse;
mod table;
mod topology_file;

use std::{
    io::{self, Write},
    process::ExitCode,
};

use clap::Parser;

use crate::{arguments::Arguments, environment::Environment, failure::Failure};

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = Environment::read().and_then(|environment| commands::run(arguments.command, &environment));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever read our output has seen enough.
        Err(Failure::ReaderGone) => ExitCode::SUCCESS,
        Err(failure) => {
            // There is nowhere left to report that standard error is closed.
            let _ = writeln!(io::stderr(), "{failure}");
            ExitCode::from(failure.exit_code())
        }
    }
}
