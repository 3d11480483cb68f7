//! What can be declared, checked and planned, but not brought up yet. When it can be, its row goes.

use crate::{
    Problem, RoleName, Topology,
    schema::{Carrier, KvDtype, Parallel, Tier},
};

/// A feature: what it is called, and the fields that ask for it.
type Row = (&'static str, fn(&Topology) -> Vec<String>);

const ROWS: &[Row] = &[
    ("emulation of accelerators", |t| asked("emulate", t.emulate.is_some())),
    ("the encoder role", |t| {
        asked("roles.encoder", t.roles.encoder.is_some())
    }),
    ("an encoder inside another role", |t| {
        worker_fields(t, "folds", |w| w.folds.contains(&RoleName::Encoder))
    }),
    ("accelerators", accelerators),
    ("several nodes", |t| asked("nodes", t.nodes.len() > 1)),
    ("parallel ranks", |t| {
        worker_fields(t, "parallel", |w| w.parallel != Parallel::default())
    }),
    ("a choice of devices", |t| {
        worker_fields(t, "devices", |w| !w.devices.is_empty())
    }),
    ("a share of a device's memory", |t| {
        worker_fields(t, "memory_fraction", |w| w.memory_fraction.is_some())
    }),
    ("ports of single roles", |t| {
        worker_fields(t, "port", |w| w.port.is_some())
    }),
    ("speculation", |t| {
        worker_fields(t, "speculation", |w| w.speculation.is_some())
    }),
    ("a choice of quantization", |t| {
        asked("model.quantization", t.model.quantization.is_some())
    }),
    ("fp8 pages", |t| {
        asked("kv_cache.dtype", t.kv_cache.dtype == KvDtype::Fp8)
    }),
    ("a disk tier", disk_tiers),
    ("several routers", |t| {
        asked(
            "roles.router.replicas",
            t.roles.router.as_ref().is_some_and(|r| r.replicas > 1),
        )
    }),
    ("this link", links),
];

/// What a topology asks for that this version cannot bring up.
pub fn unsupported(topology: &Topology) -> Vec<Problem> {
    let help = "remove it to bring the file up with this version; 'cluster check' accepts it as it is";
    ROWS.iter()
        .flat_map(|(feature, fields)| {
            let message = format!("{feature}: not supported yet");
            let problem = move |at: String| Problem::new("not-supported-yet", &at, message.clone(), help);
            fields(topology).into_iter().map(problem)
        })
        .collect()
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

fn accelerators(topology: &Topology) -> Vec<String> {
    let nodes = topology.nodes.iter().enumerate();
    nodes
        .filter(|(_, node)| node.accelerator.as_str() != "cpu")
        .map(|(index, _)| format!("nodes.{index}.accelerator"))
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
