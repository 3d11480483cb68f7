//! Every shipped topology is planned for the hardware it declares, and for this machine with a stand-in.

use cluster_messages::Role;
use cluster_plan::{
    Device, Emulation, Encoding, Inventory, ModelFacts, NodeInventory, Plan, Settings, emulate, plan, render,
};
use cluster_topologies::{
    Catalogue, Document, Resolved,
    catalogue::{shipped_topologies, shipped_topology},
    schema::Fallback,
    unsupported,
};

use super::{GIB, facts_of, resolved};

fn laptop() -> NodeInventory {
    NodeInventory::of_cores("local", 2, 8 * GIB)
}

fn declared(resolved: &Resolved) -> Plan {
    let facts = ModelFacts::declared(&resolved.model).unwrap_or_else(|| facts_of(resolved));
    let inventory = Inventory::declared(resolved, &laptop());
    plan(resolved, &inventory, &facts, None).unwrap_or_else(|problems| panic!("{}: {problems:#?}", resolved.name))
}

fn emulated(resolved: &Resolved) -> Plan {
    let stand_in = resolved.emulate.as_ref().expect("the topology names a stand-in");
    let facts = ModelFacts::of_origin(&stand_in.origin).expect("the stand-in has a model file");
    emulate(resolved, &declared(resolved), &facts, &laptop())
        .unwrap_or_else(|problems| panic!("{}: {problems:#?}", resolved.name))
}

fn shipped(name: &str) -> Resolved {
    resolved(shipped_topology(name).expect("the file is shipped"))
}

/// What stands in, and the plan it stands in.
fn emulation(plan: &Plan) -> &Emulation {
    plan.emulation.as_ref().expect("the plan is emulated")
}

#[test]
fn every_shipped_topology_fits_the_hardware_it_declares() {
    for (_, text) in shipped_topologies() {
        let plan = declared(&resolved(text));
        for row in &plan.devices {
            assert!(row.used_bytes() <= row.limit_bytes(), "{}: {row:?}", plan.topology);
        }
        for node in &plan.memory {
            assert!(node.used_bytes() <= node.limit_bytes(), "{}: {node:?}", plan.topology);
        }
    }
}

#[test]
fn what_can_be_brought_up_is_emulated_with_the_same_instances() {
    for (name, text) in shipped_topologies() {
        let document = Document::read(text, name);
        let resolved = document.resolve(&Catalogue::shipped()).unwrap();
        if resolved.emulate.is_none() || !unsupported(document.topology().unwrap()).is_empty() {
            continue;
        }
        let (declared, emulated) = (declared(&resolved), emulated(&resolved));
        let with_towers = |plan: &Plan| plan.instances.iter().map(|instance| instance.path).collect::<Vec<_>>();
        assert_eq!(with_towers(&declared), with_towers(&emulated), "{name}");
        for (here, there) in emulated.instances.iter().zip(&declared.instances) {
            assert_eq!(here.folds, there.folds);
            assert_eq!(here.parallel, there.parallel, "{name} {}", here.path);
            assert!(here.devices.is_empty());
            if let Settings::Worker(worker) = &here.settings {
                assert_eq!(worker.blocks.len(), 2, "muse-nano keeps two classes of state");
                assert!(worker.kv_tokens() >= 4096, "{name}: {worker:?}");
            }
        }
        assert_eq!(emulated.model.context, 4096);
        assert_eq!(emulated.model.served_names, resolved.model.served_names);
    }
}

#[test]
fn the_headline_is_emulated_by_ten_ranks() {
    let plan = emulated(&shipped("epd-b300"));
    let lines = emulation(&plan).lines();
    assert_eq!(
        lines[..2],
        [
            "8 x b300 of box: 10 ranks on this processor, as roles share accelerators",
            "muse-spark-open-816b-a42b: muse-nano"
        ]
    );
    let threads: Vec<_> = plan.instances.iter().map(|instance| instance.threads).collect();
    assert_eq!(threads, [0, 1, 1, 1, 0, 0], "one thread for each rank");
    assert!(matches!(
        &plan.encoding,
        Encoding::Apart {
            fallback: Fallback::Fail,
            ..
        }
    ));
}

#[test]
fn a_stand_in_is_cut_as_far_as_declared_though_some_ranks_have_nothing() {
    let plan = emulated(&shipped("muse-spark-h200-bf16"));
    let decode = plan.of_role(Role::Decode).next().unwrap();
    assert_eq!((decode.parallel.tensor, decode.parallel.expert), (16, 16));
    let split = plan.checks.iter().find(|check| check.rule == "split").unwrap();
    assert!(
        split.detail.contains("a rank has at most 1 of 8 heads"),
        "{}",
        split.detail
    );
}

#[test]
fn a_worker_of_eight_ranks_spans_two_trays_of_one_rack_but_not_of_two() {
    let resolved = shipped("muse-spark-gb300-tp8");
    let decode = declared(&resolved);
    let decode = decode.of_role(Role::Decode).next().unwrap();
    let devices: Vec<_> = decode
        .devices
        .iter()
        .map(|Device { node, index }| format!("{node} {index}"))
        .collect();
    assert_eq!(devices.len(), 8);
    assert_eq!((devices[3].as_str(), devices[4].as_str()), ("tray0 3", "tray1 0"));
    assert!(decode.reasons[0].contains("NVLink"), "{:?}", decode.reasons);

    let mut apart = resolved.clone();
    apart.nodes[1].link_domain = Some("other-rack".parse().unwrap());
    let facts = ModelFacts::declared(&apart.model).unwrap();
    let problems = plan(&apart, &Inventory::declared(&apart, &laptop()), &facts, None).unwrap_err();
    assert_eq!(problems[0].rule, "too-few-devices");
}

/// The figures of a rank of four, computed by hand from the published sizes.
#[test]
fn each_device_of_the_headline_holds_what_was_computed_by_hand() {
    let plan = declared(&shipped("epd-b300"));
    let near = |bytes: u64, expected: f64, what: &str| {
        let ratio = bytes as f64 / expected;
        assert!((0.99..1.01).contains(&ratio), "{what}: {bytes} for {expected}");
    };
    let experts = 62.0 * 256.0 * 3.0 * 4096.0 * 4096.0 * (0.5 + 1.0 / 16.0) / 4.0;
    let attention = 62.0 * (3.0 * 8192.0 * 8192.0 + 2.0 * 1024.0 * 8192.0) * 2.0 / 4.0;
    let pooling = 62.0 * 2.0 * 4096.0 * 8192.0 * 2.0;
    let router = 62.0 * 256.0 * 8192.0 * 4.0;
    let vocabulary = 2.0 * 202_048.0 * 8192.0 * 2.0 / 4.0;
    let language = experts + attention + pooling + router + vocabulary;
    // Attention and feed-forward of 50 layers are halved; what is around them and the audio tower are copied.
    let vision = 50.0 * (4.0 * 1536.0 * 1536.0 + 2.0 * 1536.0 * 8960.0) * 2.0 / 2.0;
    let towers = vision + (78.9e6 + 117.8e6) * 2.0;
    let of = |role: Role, index: u32| {
        let mut rows = plan.devices.iter();
        let found = rows.find(|row| row.instance.role == role && row.device.index == index);
        found.unwrap_or_else(|| panic!("{role} is not on device {index}"))
    };
    near(of(Role::Encoder, 1).weights_bytes, towers, "towers");
    for (role, devices) in [(Role::Prefill, 0..4), (Role::Decode, 4..8)] {
        for index in devices {
            let row = of(role, index);
            near(row.weights_bytes, language, "language model");
            // A rank keeps 4 of 16 heads: 16 whole layers, and 46 of which only the end counts.
            let left = row.limit_bytes() - row.weights_bytes - row.activation_bytes;
            near(row.kv_bytes, left as f64, "pages fill what is left");
        }
    }
    let Settings::Worker(decode) = &plan.of_role(Role::Decode).next().unwrap().settings else {
        panic!("decode computes tokens");
    };
    assert_eq!(decode.classes[0].block_bytes, 64 * 16 * 2 * 4 * 64);
    assert_eq!(decode.classes[1].block_bytes, 64 * 46 * 2 * 4 * 64);
    // 64 running requests, as many ends of prefixes, 33 blocks each, and 8 for a step of 512 tokens.
    assert_eq!(decode.blocks[1], 128 * 33 + 8);
}

#[test]
fn the_plan_of_the_headline_reads_like_this() {
    let text = render(&declared(&shipped("epd-b300")));
    let expected = include_str!("../plans/epd-b300.expected");
    assert!(text == expected, "the text is\n{text}--- but should be\n{expected}");
}

#[test]
fn the_emulated_plan_of_the_headline_reads_like_this() {
    let text = render(&emulated(&shipped("epd-b300")));
    let expected = include_str!("../plans/epd-b300-emulated.expected");
    assert!(text == expected, "the text is\n{text}--- but should be\n{expected}");
}
