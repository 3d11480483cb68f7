//! `cluster pull`: fetches a model's file before it is needed.

use std::{io::Write, path::Path};

use clap::Args;
use cluster_topologies::ModelFile;
use serde::Serialize;

use super::write_json;
use crate::{
    environment::Environment,
    failure::Failure,
    model_file,
    topology_file::{catalogue_with, read_model},
};

/// Fetch a model into the cache folder, or find it there. Prints the path of the verified file.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  cluster pull smollm2-135m-instruct
  cluster pull models/mine.yaml --json

A download that was interrupted goes on where it stopped.")]
pub(crate) struct Arguments {
    /// The name of a shipped model or of one in ./models, or the path of a model file
    #[arg(value_name = "MODEL")]
    model: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What was pulled.
#[derive(Serialize)]
struct Pulled<'a> {
    name: &'a str,
    path: &'a Path,
    bytes: Option<u64>,
    /// Of the one file; a folder has none.
    sha256: Option<&'a str>,
}

pub(crate) fn run(arguments: &Arguments, environment: &Environment, out: &mut dyn Write) -> Result<(), Failure> {
    let model = find(&arguments.model)?;
    let path = model_file::ensure(&environment.store(), &model)?;
    if arguments.json {
        let pulled = Pulled {
            name: model.name.as_str(),
            path: &path,
            bytes: model.bytes,
            sha256: model.sha256.as_ref().map(cluster_topologies::Sha256::as_str),
        };
        return write_json(&pulled, out);
    }
    Ok(writeln!(out, "{}", path.display())?)
}

/// The model file that `name` means.
pub(super) fn find(name: &str) -> Result<ModelFile, Failure> {
    if name.ends_with(".yaml") {
        return read_model(Path::new(name));
    }
    let catalogue = catalogue_with(Path::new("."))?;
    if let Some(model) = catalogue.get(name) {
        return Ok(model.clone());
    }
    let names: Vec<&str> = catalogue.models().map(|model| model.name.as_str()).collect();
    Err(Failure::input(format!(
        "there is no model '{name}'\n  help: name one of {}, or the path of a model file",
        names.join(", ")
    )))
}
