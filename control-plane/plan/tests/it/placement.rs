//! Who runs where, with what, in which order.

use cluster_messages::{ActorPath, NodeId, Role};
use cluster_plan::{Instance, Inventory, NodeInventory, Plan, Settings, WorkerSettings};
use cluster_topologies::catalogue::shipped_topology;

use super::{GIB, laptop, planned, two_machines};

const TWO_NODES: &str = include_str!("../plans/two-nodes.yaml");

fn worker(instance: &Instance) -> WorkerSettings {
    match &instance.settings {
        Settings::Worker(worker) => worker.clone(),
        other => panic!("{} has {other:?}", instance.path),
    }
}

fn get(plan: &Plan, role: Role, ordinal: u32) -> &Instance {
    plan.instance(ActorPath::new(role, ordinal))
        .expect("the plan has this instance")
}

#[test]
fn instances_start_before_those_that_need_them() {
    let plan = planned(shipped_topology("local-pd").unwrap(), &laptop(), None);
    let order: Vec<_> = plan
        .instances
        .iter()
        .map(|instance| instance.path.to_string())
        .collect();
    assert_eq!(order, ["cache.0", "prefill.0", "decode.0", "router.0", "tokenizer.0"]);
    let mut live = Vec::new();
    for instance in &plan.instances {
        let met = |needs: &Vec<Role>| needs.iter().all(|role| live.contains(role));
        assert!(
            instance.needs.is_empty() || instance.needs.iter().any(met),
            "{} starts too early",
            instance.path
        );
        live.push(instance.path.role);
    }
}

#[test]
fn blocks_fill_the_memory_and_no_more() {
    let plan = planned(shipped_topology("local").unwrap(), &laptop(), None);
    let worker = worker(get(&plan, Role::Decode, 0));
    // SmolLM2-135M: 30 layers, keys and values of 3 heads with 64 numbers of 2 bytes.
    let block_bytes = u64::from(worker.block_tokens) * 30 * 2 * 3 * 64 * 2;
    let memory = 512 << 20;
    let used = u64::from(worker.blocks[0]) * block_bytes;
    assert!(used <= memory && used + block_bytes > memory, "{used} of {memory}");
    assert_eq!(plan.memory[0].kv_bytes, used);
    assert_eq!(plan.memory[0].weights_bytes, 98_362_432);
    assert!(worker.offload && worker.prefix_reuse);
}

#[test]
fn prefill_inside_decode_leaves_one_instance_that_needs_nobody() {
    let plan = planned(shipped_topology("local").unwrap(), &laptop(), None);
    let decode = get(&plan, Role::Decode, 0);
    assert_eq!(
        (decode.folds.as_slice(), decode.threads),
        ([Role::Prefill].as_slice(), 2)
    );
    assert!(decode.needs.is_empty());
    assert_eq!(plan.of_role(Role::Prefill).count(), 0);
}

#[test]
fn cores_are_shared_but_nobody_gets_none() {
    let split = planned(shipped_topology("local-pd").unwrap(), &laptop(), None);
    assert_eq!(
        (
            get(&split, Role::Prefill, 0).threads,
            get(&split, Role::Decode, 0).threads
        ),
        (1, 1)
    );
    let many = shipped_topology("local-pd")
        .unwrap()
        .replace("  decode:\n", "  decode: { replicas: 5 }\n");
    let many = planned(&many, &laptop(), None);
    assert!(many.of_role(Role::Decode).all(|decode| decode.threads == 1));
}

#[test]
fn a_context_that_nobody_asked_for_shrinks_to_the_pages() {
    let text = shipped_topology("local")
        .unwrap()
        .replace("memory: 512MiB", "memory: 64MiB");
    let plan = planned(&text, &laptop(), None);
    assert_eq!(
        u64::from(plan.model.context),
        worker(get(&plan, Role::Decode, 0)).kv_tokens()
    );
    assert!(plan.model.context < 8192);
}

#[test]
fn a_machine_of_the_nodes_name_comes_first_and_labels_must_match() {
    let plan = planned(TWO_NODES, &two_machines(), None);
    assert!(
        plan.of_role(Role::Prefill)
            .all(|prefill| prefill.node == NodeId("m1".into()))
    );
    let mut inventory = two_machines();
    inventory.nodes.push(NodeInventory::of_cores("small", 4, 8 * GIB));
    let plan = planned(TWO_NODES, &inventory, None);
    let nodes: Vec<_> = plan.memory.iter().map(|row| row.node.0.as_str()).collect();
    assert_eq!(nodes, ["m1", "small"]);
}

#[test]
fn every_instance_says_why_it_is_where_it_is() {
    for inventory in [laptop(), two_machines()] {
        let plan = planned(shipped_topology("local-pd").unwrap(), &inventory, None);
        assert!(
            plan.instances
                .iter()
                .all(|instance| instance.reasons[0].starts_with("on "))
        );
        assert_eq!(get(&plan, Role::Decode, 0).reasons.len(), 3);
    }
}

#[test]
fn an_empty_inventory_is_a_problem_not_a_panic() {
    let resolved = super::resolved(shipped_topology("local").unwrap());
    let refused = cluster_plan::plan(&resolved, &Inventory::default(), &super::facts_of(&resolved), None);
    assert_eq!(refused.unwrap_err()[0].rule, "no-machine");
}
