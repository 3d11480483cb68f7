//! `cluster schema`: the form of topology files, for editors.

use std::io::Write;

use clap::Args;

use super::write_json;
use crate::failure::Failure;

/// Print the JSON Schema of topology files.
#[derive(Args, Debug)]
#[command(after_help = "\
Example:
  cluster schema > topology.schema.json

With the YAML extension of VS Code, this first line of a topology file switches completion and checks on:
  # yaml-language-server: $schema=./topology.schema.json")]
pub(crate) struct Arguments {}

pub(crate) fn run(out: &mut dyn Write) -> Result<(), Failure> {
    write_json(&cluster_topologies::json_schema(), out)
}
