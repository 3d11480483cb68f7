//! `cluster plan`: what `up` would start on this machine, or on the hardware that a topology declares, with settings, memory
//! and reasons.

use std::{io::Write, path::PathBuf};

use clap::Args;
use cluster_node::{ServedModel, StartError, declared_plan};
use cluster_plan::ModelFacts;
use cluster_topologies::Resolved;

use super::write_json;
use crate::{environment::Environment, failure::Failure, model_file, topology_file::TopologyFile};

/// Show what a topology would start: placement, settings, memory, and why.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  cluster plan topologies/local.yaml
  cluster plan local --json
  cluster plan epd-b300           on the hardware it declares, which need not be here

Nothing is started and nothing is fetched.")]
pub(crate) struct Arguments {
    /// A topology file, or the name of a shipped one such as 'local'
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments, environment: &Environment, out: &mut dyn Write) -> Result<(), Failure> {
    let file = TopologyFile::read(&arguments.file)?;
    let topology = file.resolve()?;
    let facts = facts(&topology, &file, environment)?;
    let plan = declared_plan(&topology, &facts).map_err(|problems| file.failure(problems))?;
    if arguments.json {
        return write_json(&plan, out);
    }
    Ok(out.write_all(cluster_plan::render(&plan).as_bytes())?)
}

/// The model's figures: a model file says them, any other model is opened.
fn facts(topology: &Resolved, file: &TopologyFile, environment: &Environment) -> Result<ModelFacts, Failure> {
    if let Some(facts) = ModelFacts::declared(&topology.model) {
        return Ok(facts);
    }
    let location = model_file::locate(&topology.model.origin, &file.folder, &environment.store())?;
    let model = ServedModel::load(topology, &location).map_err(StartError::Model);
    Ok(model.map_err(|error| Failure::failed(error.to_string()))?.facts)
}
