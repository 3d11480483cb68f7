//! Which plan this machine executes: the topology's own, or the one in which processor ranks and a small model stand in for
//! what is not here.

use cluster_plan::{Inventory, ModelFacts, Plan, emulate, plan};
use cluster_topologies::{ModelOrigin, Problem, Resolved, schema::KvDtype};

use crate::inventory;

/// The model that is served here: the topology's own, or its stand-in.
pub fn served_model(topology: &Resolved) -> &ModelOrigin {
    match &topology.emulate {
        Some(stand_in) if topology.needs_hardware() => &stand_in.origin,
        _ => &topology.model.origin,
    }
}

/// How the served model keeps keys and values.
pub(crate) fn kv_dtype(topology: &Resolved) -> KvDtype {
    match &topology.emulate {
        Some(stand_in) if topology.needs_hardware() => stand_in.kv_dtype,
        _ => topology.kv_cache.dtype,
    }
}

/// The plan for the machines that the topology names, wherever they are. `facts` are those of the topology's own model.
pub fn declared_plan(topology: &Resolved, facts: &ModelFacts) -> Result<Plan, Vec<Problem>> {
    let local = inventory::machine();
    let inventory = if topology.needs_hardware() {
        Inventory::declared(topology, &local)
    } else {
        Inventory { nodes: vec![local] }
    };
    plan(topology, &inventory, facts, None)
}

/// The plan that this machine executes, for the model that is served here.
pub fn executed_plan(topology: &Resolved, served: &ModelFacts) -> Result<Plan, Vec<Problem>> {
    if !topology.needs_hardware() {
        return declared_plan(topology, served);
    }
    let declared = ModelFacts::declared(&topology.model);
    let declared = declared_plan(topology, declared.as_ref().unwrap_or(served))?;
    emulate(topology, &declared, served, &inventory::machine())
}

/// What this machine lacks of what the topology declares; empty when nothing has to stand in.
pub fn missing_hardware(topology: &Resolved) -> Vec<Problem> {
    let local = inventory::local();
    let missing = topology.nodes.iter().enumerate().filter_map(|(index, node)| {
        let here: u32 = local
            .nodes
            .iter()
            .map(|machine| machine.count_of(node.accelerator.as_str()))
            .sum();
        (node.has_accelerators() && here < node.count.max(1)).then(|| {
            let message = format!(
                "{} needs {} x {}; this machine has {here}",
                node.name,
                node.count.max(1),
                node.accelerator
            );
            let help = "bring it up where they are, or leave out --require-hardware to have it emulated";
            Problem::new("hardware-missing", &format!("nodes.{index}.accelerator"), message, help)
        })
    });
    let mut problems: Vec<Problem> = missing.collect();
    if topology.nodes.len() > local.nodes.len() {
        let message = format!("{} nodes are declared; this is one machine", topology.nodes.len());
        let help = "leave out --require-hardware to have them emulated";
        problems.push(Problem::new("hardware-missing", "nodes", message, help));
    }
    problems
}
