//! `cluster check`: everything that is wrong with topology files, before anything is started.

use std::{
    io::Write,
    path::{Path, PathBuf},
};

use clap::Args;
use serde::Serialize;

use super::write_json;
use crate::{failure::Failure, topology_file::TopologyFile};

/// Check topology files. All problems of a file are reported together, with place, rule and remedy.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  cluster check topologies/local.yaml
  cluster check *.yaml --json     one object per file, for scripts

Exits with 2 if a file has problems.")]
pub(crate) struct Arguments {
    /// Topology files, or names of shipped ones such as 'local'
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The result for one file.
#[derive(Serialize)]
struct Checked {
    file: String,
    ok: bool,
    problems: Vec<cluster_topologies::Problem>,
}

pub(crate) fn run(arguments: &Arguments, out: &mut dyn Write) -> Result<(), Failure> {
    let mut list = Vec::new();
    let mut complaints = Vec::new();
    for file in &arguments.files {
        let problems = match check(file) {
            Ok(()) => Vec::new(),
            Err(Failure::File(problems)) => {
                complaints.push(problems.to_string());
                problems.list
            }
            Err(failure) => return Err(failure),
        };
        list.push(Checked {
            file: file.to_string_lossy().into_owned(),
            ok: problems.is_empty(),
            problems,
        });
    }
    let all_ok = complaints.is_empty();
    if arguments.json {
        // The problems are in the JSON; saying them again would be noise.
        complaints.clear();
        write_json(&list, out)?;
    } else {
        for checked in list.iter().filter(|checked| checked.ok) {
            writeln!(out, "{}: ok", checked.file)?;
        }
    }
    if all_ok {
        Ok(())
    } else {
        Err(Failure::Files(complaints.concat()))
    }
}

fn check(file: &Path) -> Result<(), Failure> {
    TopologyFile::read(file)?.resolve().map(drop)
}
