//! `cluster plan`: what `up` would start on this machine, with settings, memory and reasons.

use std::{io::Write, path::PathBuf};

use clap::Args;
use cluster_node::{ServedModel, StartError, local_inventory};
use cluster_plan::ModelFacts;
use cluster_topologies::{ModelOrigin, Resolved};

use super::write_json;
use crate::{environment::Environment, failure::Failure, model_file, topology_file::TopologyFile};

/// Show what 'up' would start on this machine: placement, settings, memory, and why.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  cluster plan topologies/local.yaml
  cluster plan local --json

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
    let plan = cluster_plan::plan(&topology, &local_inventory(), &facts, None);
    let plan = plan.map_err(|problems| file.failure(problems))?;
    if arguments.json {
        return write_json(&plan, out);
    }
    Ok(out.write_all(cluster_plan::render(&plan).as_bytes())?)
}

/// The model's figures: a model file says them, any other model is opened.
fn facts(topology: &Resolved, file: &TopologyFile, environment: &Environment) -> Result<ModelFacts, Failure> {
    if let ModelOrigin::File(model) = &topology.model.origin {
        return Ok(ModelFacts::from(model.as_ref()));
    }
    let location = model_file::locate(&topology.model.origin, &file.folder, &environment.store())?;
    let model = ServedModel::load(topology, &location).map_err(StartError::Model);
    Ok(model.map_err(|error| Failure::failed(error.to_string()))?.facts)
}
