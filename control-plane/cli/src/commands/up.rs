//! `cluster up`: brings a topology up on this machine and serves until it is told to stop.

mod banner;
mod descriptors;
mod detached;
mod foreground;
mod signals;

use std::{io::Write, net::SocketAddr, path::PathBuf};

use clap::{Args, ValueEnum};
use cluster_node::{missing_hardware, served_model};
use cluster_telemetry::LogFormat;

use crate::{environment::Environment, failure::Failure, model_file, runs::Runs, topology_file::TopologyFile};

/// Check, place and start a topology on this machine, and serve until Ctrl-C.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  cluster up topologies/local.yaml
  cluster up epd-b300                        encoder, prefill and decode of a large model, emulated
  cluster up local --port 9000 --detach      in the background; 'cluster down' stops it
  curl http://127.0.0.1:8000/v1/chat/completions -H 'content-type: application/json' \\
    -d '{\"model\": \"smollm2-135m-instruct\", \"messages\": [{\"role\": \"user\", \"content\": \"Hello!\"}]}'

A topology for hardware that is not here comes up with ranks of this processor and the small model of its
'emulate' instead; 'cluster plan' shows it on its own hardware.

The model is fetched on first use. Ctrl-C or SIGTERM finishes the requests in flight (for as long as
'limits.drain' of the topology says) and exits with 0; a second one cuts them off, each with one error.")]
pub(crate) struct Arguments {
    /// A topology file, or the name of a shipped one such as 'local'
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Another port than the topology's for the endpoint; 0 takes any that is free
    #[arg(long)]
    port: Option<u16>,
    /// Where the control-plane API listens; port 0 takes any that is free, and commands on this machine find it
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    api: SocketAddr,
    /// Return as soon as the cluster is ready; its output goes to a log file
    #[arg(long)]
    detach: bool,
    /// Refuse to emulate: list what this machine lacks of what the topology declares, and stop
    #[arg(long)]
    require_hardware: bool,
    /// How log lines on standard error look
    #[arg(long, value_enum, default_value_t = Log::Text)]
    log: Log,
}

/// How log lines look.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Log {
    Text,
    Json,
}

impl Log {
    fn format(self) -> LogFormat {
        match self {
            Log::Text => LogFormat::Text,
            Log::Json => LogFormat::Json,
        }
    }
}

pub(crate) fn run(arguments: &Arguments, environment: &Environment, out: &mut dyn Write) -> Result<(), Failure> {
    let file = TopologyFile::read(&arguments.file)?;
    let topology = file.resolve_for_start()?;
    if arguments.require_hardware {
        let missing = missing_hardware(&topology);
        if !missing.is_empty() {
            return Err(file.failure(missing));
        }
    }
    let runs = Runs::new(&environment.state);
    if arguments.detach {
        runs.refuse_second(topology.name.as_str())?;
        // Fetched here, where someone sees the bar; the cluster then finds it.
        model_file::locate(served_model(&topology), &file.folder, &environment.store())?;
        return detached::run(arguments, topology.name.as_str(), &runs, out);
    }
    descriptors::allow_as_many_as_possible();
    let claim = runs.claim(topology.name.as_str())?;
    let model = model_file::locate(served_model(&topology), &file.folder, &environment.store())?;
    let start = foreground::Start {
        file: &file,
        topology,
        model,
        claim,
    };
    foreground::run(start, arguments, environment, out)
}
