//! The command line.

use clap::{Parser, Subcommand};

use crate::commands::{bench, chat, check, down, events, plan, pull, schema, status, topologies, trace, up};

const EXIT_CODES: &str = "\
Exit codes: 0 done, 1 failed, 2 wrong input (command line, topology or model file).
Variables: CLUSTER_LOG chooses the log lines of 'up' (such as info,cluster_gateway=debug), OTEL_EXPORTER_OTLP_ENDPOINT sends
its spans to a collector, HF_ENDPOINT and HF_TOKEN reach another hub, CLUSTER_API_KEY is the key of 'chat'.
Folders: models are kept in $CLUSTER_CACHE (or $XDG_CACHE_HOME/cluster, ~/.cache/cluster), what is known about running
clusters in $XDG_STATE_HOME/cluster (or ~/.local/state/cluster).";

/// Serves language models from one topology file.
#[derive(Parser, Debug)]
#[command(name = "cluster", version, after_help = EXIT_CODES, max_term_width = 100)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    Up(up::Arguments),
    Down(down::Arguments),
    Status(status::Arguments),
    Chat(chat::Arguments),
    Trace(trace::Arguments),
    Events(events::Arguments),
    Topologies(topologies::Arguments),
    Check(check::Arguments),
    Plan(plan::Arguments),
    Pull(pull::Arguments),
    Bench(bench::Arguments),
    Schema(schema::Arguments),
}
