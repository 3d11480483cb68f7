//! What can be declared, checked and planned, but not brought up yet. When it can be, its row goes.

use crate::{
    Problem, RoleName, Topology,
    schema::{Carrier, ExpertArithmetic, Node, Tier},
};

/// A feature: what it is called, and the fields that ask for it.
type Row = (&'static str, fn(&Topology) -> Vec<String>);

const ROWS: &[Row] = &[
    ("attention in independent groups", |t| {
        let encoder = t.roles.encoder.iter().filter(|encoder| encoder.parallel.data > 1);
        let encoder = encoder.map(|_| "roles.encoder.parallel.data".to_owned());
        let mut fields = worker_fields(t, "parallel.data", |w| w.parallel.data > 1);
        fields.extend(encoder);
        fields
    }),
    ("speculation", |t| {
        worker_fields(t, "speculation", |w| w.speculation.is_some())
    }),
    ("a disk tier", disk_tiers),
    ("several routers", |t| {
        asked(
            "roles.router.replicas",
            t.roles.router.as_ref().is_some_and(|r| r.replicas > 1),
        )
    }),
];

/// What a topology asks for that this version cannot bring up.
pub fn unsupported(topology: &Topology) -> Vec<Problem> {
    let help =
        "remove it to bring the file up with this version; 'cluster check' and 'cluster plan' accept it as it is";
    let mut problems: Vec<Problem> = ROWS
        .iter()
        .flat_map(|(feature, fields)| {
            let message = format!("{feature}: not supported yet");
            let problem = move |at: String| Problem::new("not-supported-yet", &at, message.clone(), help);
            fields(topology).into_iter().map(problem)
        })
        .collect();
    if topology.emulate.is_none() {
        problems.extend(hardware(topology));
        problems.extend(conversions(topology));
    }
    problems
}

/// What is done to weights only where they are real: a stand-in has its own.
fn conversions(topology: &Topology) -> impl Iterator<Item = Problem> {
    let model = &topology.model;
    let asked = [
        (
            "model.requantize",
            "weights in another format than theirs",
            model.requantize.is_some(),
        ),
        (
            "model.experts",
            "experts that widen their weights",
            model.experts != ExpertArithmetic::Native,
        ),
    ];
    asked
        .into_iter()
        .filter(|(_, _, is_asked)| *is_asked)
        .map(|(at, what, _)| {
            let help = "remove it: weights are multiplied in the format they have";
            Problem::new("not-supported-yet", at, format!("{what}: not supported yet"), help)
        })
}

/// What runs only where processor ranks of this machine stand in for it.
fn hardware(topology: &Topology) -> Vec<Problem> {
    let help = "add 'emulate: { model: muse-nano }': the same layout then runs on this processor with a small model";
    let accelerators = topology
        .nodes
        .iter()
        .enumerate()
        .filter(|(_, node)| node.has_accelerators());
    let mut problems: Vec<Problem> = accelerators
        .map(|(index, node)| {
            let message = format!("computing on {} accelerators: not supported yet", node.accelerator);
            Problem::new(
                "not-supported-yet",
                &format!("nodes.{index}.accelerator"),
                message,
                help,
            )
        })
        .collect();
    let several = topology.nodes.len() > 1;
    if several && !topology.nodes.iter().any(Node::has_accelerators) {
        problems.push(Problem::new(
            "not-supported-yet",
            "nodes",
            "several nodes: not supported yet",
            help,
        ));
    }
    problems.extend(links(topology).into_iter().map(|at| {
        let message = "this link: not supported yet";
        Problem::new(
            "not-supported-yet",
            &at,
            message,
            "use 'auto': the fastest that reaches",
        )
    }));
    problems
}

fn asked(at: &str, is_asked: bool) -> Vec<String> {
    if is_asked { vec![at.to_owned()] } else { Vec::new() }
}

fn worker_fields(topology: &Topology, field: &str, asks: fn(&crate::schema::Worker) -> bool) -> Vec<String> {
    let roles = &topology.roles;
    let prefill = roles.prefill.iter().map(|worker| (RoleName::Prefill, worker));
    let workers = prefill.chain(roles.decode.iter().map(|worker| (RoleName::Decode, worker)));
    workers
        .filter(|(_, worker)| asks(worker))
        .map(|(role, _)| format!("roles.{role}.{field}"))
        .collect()
}

fn disk_tiers(topology: &Topology) -> Vec<String> {
    let tiers = topology.kv_cache.tiers.iter().enumerate();
    tiers
        .filter(|(_, tier)| matches!(tier, Tier::Disk(_)))
        .map(|(index, _)| format!("kv_cache.tiers.{index}"))
        .collect()
}

fn links(topology: &Topology) -> Vec<String> {
    let here = |carrier| matches!(carrier, Carrier::Auto | Carrier::InProcess);
    let links = [
        ("links.kv", topology.links.kv),
        ("links.features", topology.links.features),
    ];
    let beyond = links.into_iter().filter(|(_, carrier)| !here(*carrier));
    beyond.map(|(at, _)| at.to_owned()).collect()
}
