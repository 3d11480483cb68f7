//! `cluster check`: everything that is wrong with topology files, before anything is started.

use std::{io::Write, path::PathBuf};

use clap::Args;
use cluster_topologies::catalogue::shipped_topologies;
use serde::Serialize;

use super::write_json;
use crate::{failure::Failure, topology_file::TopologyFile};

/// Check topology files. All problems of a file are reported together, with place, rule and remedy.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  cluster check topologies/local.yaml
  cluster check *.yaml --json     one object per file, for scripts
  cluster check --all             every shipped topology

Exits with 2 if a file has problems.")]
pub(crate) struct Arguments {
    /// Topology files, or names of shipped ones such as 'local'
    #[arg(required_unless_present = "all", value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Check every shipped topology
    #[arg(long, conflicts_with = "files")]
    all: bool,
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
    for (name, read) in read(arguments) {
        let problems = match read.and_then(|file| file.resolve()) {
            Ok(_) => Vec::new(),
            Err(Failure::File(problems)) => {
                complaints.push(problems.to_string());
                problems.list
            }
            Err(failure) => return Err(failure),
        };
        list.push(Checked {
            file: name,
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

/// The files that are asked for, by name.
fn read(arguments: &Arguments) -> Vec<(String, Result<TopologyFile, Failure>)> {
    if arguments.all {
        let shipped = shipped_topologies().iter();
        return shipped
            .map(|(name, text)| ((*name).to_owned(), Ok(TopologyFile::shipped(name, text))))
            .collect();
    }
    let files = arguments.files.iter();
    files
        .map(|file| (file.to_string_lossy().into_owned(), TopologyFile::read(file)))
        .collect()
}
