//! The command line.

use clap::{Parser, Subcommand};

use crate::commands::{chat, check, down, pull, schema, status, trace};

const EXIT_CODES: &str = "\
Exit codes: 0 done, 1 failed, 2 wrong input (command line, topology or model file).
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
    Down(down::Arguments),
    Status(status::Arguments),
    Check(check::Arguments),
    Pull(pull::Arguments),
    Trace(trace::Arguments),
    Chat(chat::Arguments),
    Schema(schema::Arguments),
}
