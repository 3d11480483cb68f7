//! The commands, one file each. A command gets its arguments and the environment, writes its result to standard output and
//! what is only for the eyes of a person to standard error.

pub(crate) mod bench;
pub(crate) mod chat;
pub(crate) mod check;
pub(crate) mod down;
pub(crate) mod events;
pub(crate) mod plan;
pub(crate) mod pull;
pub(crate) mod schema;
pub(crate) mod status;
mod target;
pub(crate) mod topologies;
pub(crate) mod trace;
pub(crate) mod up;

use std::{
    future::Future,
    io::{self, Write},
};

use crate::{arguments::Command, environment::Environment, failure::Failure};

/// Runs one command to its end.
pub(crate) fn run(command: Command, environment: &Environment) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let out: &mut dyn Write = &mut out;
    match command {
        Command::Down(arguments) => block_on(down::run(arguments, environment, out))?,
        Command::Status(arguments) => block_on(status::run(arguments, environment, out))?,
        Command::Events(arguments) => block_on(events::run(arguments, environment, out))?,
        Command::Bench(arguments) => bench::run(&arguments, environment, out),
        Command::Up(arguments) => up::run(&arguments, environment, out),
        Command::Plan(arguments) => plan::run(&arguments, environment, out),
        Command::Topologies(arguments) => topologies::run(&arguments, out),
        Command::Check(arguments) => check::run(&arguments, out),
        Command::Pull(arguments) => pull::run(&arguments, environment, out),
        Command::Trace(arguments) => block_on(trace::run(arguments, environment, out))?,
        Command::Chat(arguments) => block_on(chat::run(arguments, environment, out))?,
        Command::Schema(_) => schema::run(out),
    }
}

/// Runs a command that awaits. One thread is enough for a client.
fn block_on<T>(future: impl Future<Output = T>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::failed(format!("no event loop: {error}")))?;
    let result = runtime.block_on(future);
    // A read of standard input may never end; it must not hold up the exit.
    runtime.shutdown_background();
    Ok(result)
}

/// Writes a value as JSON for programs.
fn write_json(value: &impl serde::Serialize, out: &mut dyn Write) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).expect("the types written here have string keys");
    Ok(writeln!(out, "{text}")?)
}
