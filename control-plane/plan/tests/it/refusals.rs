//! Layouts that cannot work, and what is said about them: a change to a shipped file, and the rule, place and words of the
//! report.

use cluster_plan::{Inventory, ModelFacts, NodeInventory, plan};
use cluster_topologies::{Catalogue, Document, Problem};

use super::GIB;

/// Problems of a file that extends `base` with `lines`.
fn problems(base: &str, lines: &str) -> Vec<Problem> {
    let text = format!("extends: {base}\nname: changed\n{lines}\n");
    let document = Document::read(&text, "changed.yaml");
    let resolved = match document.resolve(&Catalogue::shipped()) {
        Ok(resolved) => resolved,
        Err(problems) => return problems.list,
    };
    let facts = ModelFacts::declared(&resolved.model).expect("the model has a file");
    let laptop = NodeInventory::of_cores("local", 2, 8 * GIB);
    let inventory = Inventory::declared(&resolved, &laptop);
    match plan(&resolved, &inventory, &facts, None) {
        Ok(plan) => panic!("planned: {plan:?}"),
        Err(problems) => document.locate(problems).list,
    }
}

#[track_caller]
fn refused(base: &str, lines: &str, rule: &str, at: &str, words: &str) {
    let problems = problems(base, lines);
    let found = problems.iter().find(|problem| problem.rule == rule && problem.at == at);
    let found = found.unwrap_or_else(|| panic!("no {rule} at {at} in {problems:#?}"));
    let said = format!("{}; {}", found.message, found.help);
    assert!(said.contains(words), "'{words}' is not in '{said}'");
}

#[test]
fn heads_that_cannot_be_shared() {
    let six = "roles: { decode: { parallel: { tensor: 6, expert: 6 } } }\nnodes: [{ name: box, accelerator: b300, count: 8 }]";
    refused(
        "muse-spark-gb300",
        six,
        "uneven-heads",
        "roles.decode.parallel.tensor",
        "use 4 ranks",
    );
}

#[test]
fn heads_of_towers_that_cannot_be_shared() {
    let three = "roles: { encoder: { devices: [0, 1, 2], parallel: { tensor: 3 } } }";
    refused(
        "epd-b300",
        three,
        "uneven-heads",
        "roles.encoder.parallel.tensor",
        "16 heads of the towers cannot be shared by 3 ranks evenly; use 2 ranks",
    );
}

#[test]
fn experts_that_cannot_be_shared() {
    let six = "roles: { decode: { parallel: { tensor: 6, expert: 6 } } }\nnodes: [{ name: box, accelerator: b300, count: 8 }]";
    refused(
        "muse-spark-gb300",
        six,
        "uneven-experts",
        "roles.decode.parallel.expert",
        "256 experts",
    );
    let two = "roles: { decode: { parallel: { expert: 2 } } }";
    refused(
        "muse-spark-gb300",
        two,
        "expert-ranks",
        "roles.decode.parallel.expert",
        "set expert to 4",
    );
}

#[test]
fn key_and_value_heads_are_copied_where_ranks_outnumber_them() {
    let facts = ModelFacts::declared(&super::resolved("extends: muse-spark-h200-bf16\nname: a\n").model).unwrap();
    let class = facts.classes[0];
    let bytes = |tensor| class.entry_bytes(cluster_topologies::schema::KvDtype::Fp8, tensor);
    assert_eq!((bytes(1), bytes(16)), (16 * 2 * 16 * 64, 16 * 2 * 64));
    assert_eq!(bytes(32), bytes(16));
}

#[test]
fn too_little_memory() {
    let two = "roles: { decode: { parallel: { tensor: 2, expert: 2 } } }";
    refused(
        "muse-spark-gb200",
        two,
        "memory-over",
        "roles.decode.parallel",
        "spread the model over more ranks",
    );
    let share = "roles: { prefill: { memory_fraction: 0.4 } }";
    refused(
        "epd-b300",
        share,
        "memory-over",
        "roles.prefill.memory_fraction",
        "raise it",
    );
    let hopeless = "model: { quantization: bf16 }\nroles: { prefill: { memory_fraction: 0.7 } }";
    refused(
        "epd-b300",
        hopeless,
        "memory-over",
        "roles.prefill.parallel",
        "before any page, and may use 176 GiB; spread the model over more ranks",
    );
    let inherited = "model: { quantization: bf16 }";
    refused(
        "muse-spark-gb200",
        inherited,
        "memory-over",
        "roles.decode.parallel",
        "roles.decode.parallel as in muse-spark-gb200: a rank of decode needs",
    );
    let encoder = "roles: { encoder: { memory_fraction: 0.01 }, prefill: { memory_fraction: 0.8 } }";
    // The towers fit even there; a hundredth of 270 GB is 2.7 GB.
    assert!(std::panic::catch_unwind(|| problems("epd-b300", encoder)).is_err());
    let over = "roles: { encoder: { memory_fraction: 0.2 } }";
    refused(
        "epd-b300",
        over,
        "memory-over",
        "roles.prefill.memory_fraction",
        "1.00 of its memory together",
    );
}

#[test]
fn pages_of_prefill_and_decode_that_are_unlike() {
    let pages = "roles: { decode: { kv_cache: { page_tokens: 128 } } }";
    refused(
        "epd-b300",
        pages,
        "pages-unlike",
        "roles.decode.kv_cache.page_tokens",
        "pages of 64 tokens",
    );
    let dtype = "roles: { decode: { kv_cache: { dtype: bf16 } } }";
    refused(
        "epd-b300",
        dtype,
        "pages-unlike",
        "roles.decode.kv_cache.dtype",
        "prefill writes fp8",
    );
}

#[test]
fn prompts_spread_over_other_ranks_than_heads() {
    let sequence = "roles: { prefill: { parallel: { sequence: 2 } } }";
    refused(
        "epd-b300",
        sequence,
        "sequence-ranks",
        "roles.prefill.parallel.sequence",
        "the same number",
    );
    let decode = "roles: { decode: { parallel: { sequence: 4 } } }";
    refused(
        "epd-b300",
        decode,
        "sequence-ranks",
        "roles.decode.parallel.sequence",
        "one token",
    );
}

#[test]
fn weights_that_accelerators_do_not_compute_with() {
    let nvfp4 = "model: { quantization: nvfp4 }";
    refused(
        "muse-spark-mi355x",
        nvfp4,
        "format-unsupported",
        "model.quantization",
        "requantize to mxfp4",
    );
    let native = "model: { experts: native }";
    refused(
        "muse-spark-h200",
        native,
        "format-unsupported",
        "model.quantization",
        "experts to w4a16",
    );
    let unknown = "model: { quantization: int3 }";
    refused(
        "muse-spark-h200",
        unknown,
        "unknown-quantization",
        "model.quantization",
        "nvfp4, mxfp4, int4, bf16",
    );
}

#[test]
fn links_that_do_not_reach() {
    let kinds = "nodes: [{ name: tray0, accelerator: gb300, count: 4 }, { name: tray1, accelerator: gb200, count: 4 }]";
    refused(
        "muse-spark-gb300-disagg",
        kinds,
        "unreachable-link",
        "links.kv",
        "prefill.0 is on gb300, decode.0 on gb200",
    );
    let shared = "links: { kv: shared-memory }";
    refused(
        "muse-spark-gb300-disagg",
        shared,
        "unreachable-link",
        "links.kv",
        "prefill.0 is on tray0",
    );
}

#[test]
fn hardware_that_is_unknown_or_too_small() {
    let kind = "nodes: [{ name: box, accelerator: b3000, count: 8 }]";
    refused(
        "epd-b300",
        kind,
        "unknown-accelerator",
        "nodes.0.accelerator",
        "did you mean 'b300'?",
    );
    let count = "nodes: [{ name: box, accelerator: b300, count: 4 }]";
    refused("epd-b300", count, "no-device", "roles.decode.devices.0", "which has 4");
    let replicas = "roles: { decode: { replicas: 3 } }";
    refused(
        "muse-spark-gb300",
        replicas,
        "too-few-devices",
        "roles.decode",
        "tray0 has 0 free",
    );
}
