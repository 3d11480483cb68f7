//! `cluster topologies`: the topologies inside this program, and whether they come up here.

use std::io::Write;

use clap::Args;
use cluster_topologies::{
    Document, Problems, Resolved, Topology,
    catalogue::{Catalogue, purpose, shipped_topologies},
    schema::Node,
    unsupported,
};
use serde::Serialize;

use super::write_json;
use crate::{failure::Failure, table::table};

/// List the topologies that are shipped inside this program.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  cluster topologies
  cluster topologies --json | jq -r '.[] | select(.starts) | .name'

STARTS says what 'cluster up NAME' does on this machine: 'yes', 'emulated' (on processor ranks, with the small model
that the file names), or what this version cannot bring up yet; 'cluster check' and 'cluster plan' take all of them.")]
pub(crate) struct Arguments {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What is said of one file.
#[derive(Serialize)]
struct Listed {
    name: &'static str,
    model: String,
    hardware: String,
    purpose: String,
    /// Whether `up` starts it here.
    starts: bool,
    /// The model that stands in for its own, where its hardware is not here.
    emulated_with: Option<String>,
    /// What keeps it from starting.
    missing: Vec<String>,
}

pub(crate) fn run(arguments: &Arguments, out: &mut dyn Write) -> Result<(), Failure> {
    let catalogue = Catalogue::shipped();
    let list: Result<Vec<Listed>, Problems> = shipped_topologies()
        .iter()
        .map(|(name, text)| Listed::of(name, text, &catalogue))
        .collect();
    let list = list?;
    if arguments.json {
        return write_json(&list, out);
    }
    let rows: Vec<Vec<String>> = list.into_iter().map(Listed::row).collect();
    let headings = ["NAME", "MODEL", "HARDWARE", "STARTS", "PURPOSE"];
    Ok(out.write_all(table(&headings, &rows).as_bytes())?)
}

impl Listed {
    fn of(name: &'static str, text: &str, catalogue: &Catalogue) -> Result<Self, Problems> {
        let document = Document::read(text, name);
        let resolved = document.resolve(catalogue)?;
        let topology = document.topology()?;
        let missing = missing(topology);
        let stand_in = resolved.emulate.as_ref().filter(|_| resolved.needs_hardware());
        Ok(Self {
            name,
            model: model(topology),
            hardware: hardware(&resolved),
            purpose: purpose(text),
            starts: missing.is_empty(),
            emulated_with: stand_in.map(|stand_in| stand_in.name.clone()),
            missing,
        })
    }

    fn row(self) -> Vec<String> {
        let starts = match (self.starts, self.emulated_with) {
            (false, _) => format!("no: {}", self.missing.join(", ")),
            (true, Some(_)) => "emulated".into(),
            (true, None) => "yes".into(),
        };
        vec![self.name.into(), self.model, self.hardware, starts, self.purpose]
    }
}

/// The model and the format of its weights, where the file chooses one.
fn model(topology: &Topology) -> String {
    let source = topology.model.source.to_string();
    match &topology.model.quantization {
        Some(quantization) => format!("{source} {quantization}"),
        None => source,
    }
}

/// `8 b300`, or `2 x 4 gb300` for two machines with four.
fn hardware(resolved: &Resolved) -> String {
    let mut groups: Vec<(usize, &Node)> = Vec::new();
    for node in resolved.nodes.iter().filter(|node| node.has_accelerators()) {
        match groups.last_mut() {
            Some((machines, last)) if last.accelerator == node.accelerator && last.count == node.count => {
                *machines += 1
            }
            _ => groups.push((1, node)),
        }
    }
    let named = groups.into_iter().map(|(machines, node)| match machines {
        1 => format!("{} {}", node.count, node.accelerator),
        _ => format!("{machines} x {} {}", node.count, node.accelerator),
    });
    let named: Vec<String> = named.collect();
    if named.is_empty() {
        "processor".into()
    } else {
        named.join(", ")
    }
}

/// What this version cannot bring up, each once.
fn missing(topology: &Topology) -> Vec<String> {
    let mut missing: Vec<String> = Vec::new();
    for problem in unsupported(topology) {
        let feature = problem.message.trim_end_matches(": not supported yet").to_owned();
        if !missing.contains(&feature) {
            missing.push(feature);
        }
    }
    missing
}
