//! The plan that is executed here for a topology whose hardware is elsewhere: the same instances with the same ranks, cut in
//! the same way, on processor cores, with a small model.

use cluster_topologies::{
    ByteSize, ModelOrigin, Problem, Resolved, StandIn,
    schema::{Node, Tier, Worker},
};

use crate::{Emulated, Emulation, Inventory, ModelFacts, NodeInventory, Plan, build::build, devices::ranges};

/// Memory for pages of each instance.
const KV_MEMORY: ByteSize = ByteSize::mib(64);
/// Main memory for pages of each cache instance, at most.
const TIER_MAX: u64 = 256 << 20;
/// Tokens computed in a step, at most.
const STEP_TOKENS_MAX: u32 = 2048;

/// Makes of `declared`, the plan of `resolved` for the hardware it names, the plan that `local` executes with the model that
/// `emulate` names and whose figures are `stand_in`.
pub fn emulate(
    resolved: &Resolved,
    declared: &Plan,
    stand_in: &ModelFacts,
    local: &NodeInventory,
) -> Result<Plan, Vec<Problem>> {
    let Some(model) = &resolved.emulate else {
        let help = "add 'emulate: { model: muse-nano }'";
        let message = "the topology does not say what stands in for its hardware";
        return Err(vec![Problem::new("no-stand-in", "emulate", message, help)]);
    };
    let mut notes = Vec::new();
    let small = shrink(resolved, model, stand_in, &mut notes);
    let inventory = Inventory {
        nodes: vec![local.clone()],
    };
    // What declared hardware could not do well, ranks of a processor can: the stand-in need not be cut evenly.
    let mut emulated = build(&small, &inventory, stand_in, None, Vec::new())?;
    for instance in &mut emulated.instances {
        let original = declared
            .instance(instance.path)
            .filter(|original| !original.devices.is_empty());
        if let Some(original) = original {
            let ranks = instance.parallel.ranks();
            instance
                .reasons
                .push(format!("{ranks} ranks for {}", ranges(&original.devices)));
        }
    }
    let ranks = emulated.instances.iter().filter(|instance| instance.threads > 0);
    emulated.emulation = Some(Emulation {
        model: model_name(resolved),
        stand_in: model.name.clone(),
        accelerators: resolved.nodes.iter().map(accelerators).collect(),
        ranks: ranks.map(|instance| instance.parallel.ranks()).sum(),
        notes,
    });
    Ok(emulated)
}

fn model_name(resolved: &Resolved) -> String {
    match &resolved.model.origin {
        ModelOrigin::File(file) => file.name.to_string(),
        ModelOrigin::Path(path) => path.clone(),
        ModelOrigin::Scripted(_) => "scripted".into(),
        ModelOrigin::Simulated => "simulated".into(),
    }
}

fn accelerators(node: &Node) -> Emulated {
    Emulated {
        node: node.name.to_string(),
        kind: node.accelerator.to_string(),
        count: if node.has_accelerators() { node.count.max(1) } else { 0 },
    }
}

/// The topology with the machine at hand as its only node, and sizes for a processor.
fn shrink(resolved: &Resolved, model: &StandIn, facts: &ModelFacts, notes: &mut Vec<String>) -> Resolved {
    let mut small = resolved.clone();
    small.nodes = vec![Node::local()];
    small.accelerators.clear();
    small.model.origin = model.origin.clone();
    small.model.context = None;
    small.model.quantization = None;
    small.model.requantize = None;
    small.kv_cache.memory = Some(KV_MEMORY);
    if small.kv_cache.dtype != model.kv_dtype {
        notes.push(format!(
            "pages in {}: {} declared",
            model.kv_dtype.name(),
            small.kv_cache.dtype.name()
        ));
        small.kv_cache.dtype = model.kv_dtype;
    }
    small
        .kv_cache
        .tiers
        .iter_mut()
        .for_each(|tier| shrink_tier(tier, notes));
    small.links = cluster_topologies::schema::Links::default();
    small.tokenizer.node = None;
    small.router.node = None;
    if let Some(cache) = &mut small.cache {
        cache.node = None;
    }
    if let Some(encoder) = &mut small.encoder {
        encoder.node = None;
        encoder.devices.clear();
        encoder.cache = ByteSize(encoder.cache.bytes().min(TIER_MAX));
    }
    if facts.towers.is_none() && small.encoder.take().is_some() {
        notes.push(format!("no encoder: {} takes text only", model.name));
    }
    if let Some(prefill) = &mut small.prefill {
        shrink_worker(prefill, facts);
    }
    shrink_worker(&mut small.decode, facts);
    small
}

fn shrink_tier(tier: &mut Tier, notes: &mut Vec<String>) {
    let (Tier::Host(size) | Tier::Disk(size)) = tier;
    if size.bytes() > TIER_MAX {
        notes.push(format!("a tier of {}: {size} declared", ByteSize(TIER_MAX)));
        *size = ByteSize(TIER_MAX);
    }
}

fn shrink_worker(worker: &mut Worker, facts: &ModelFacts) {
    worker.node = None;
    worker.devices.clear();
    worker.memory_fraction = None;
    worker.threads = Some(1);
    worker.step_tokens = worker.step_tokens.min(STEP_TOKENS_MAX.max(worker.running_max));
    if facts.experts.is_none() {
        worker.parallel.expert = 1;
    }
}
