//! What reading and checking do beyond single messages.

use cluster_topologies::{Catalogue, Document, ModelOrigin, Problem, load, parse, unsupported};

const GOOD: &str = "\
name: demo
model: { source: simulated }
roles:
  tokenizer:
  router:
  decode: { folds: [prefill] }
";

fn with(line: &str) -> String {
    format!("{GOOD}{line}\n")
}

#[test]
fn a_section_with_nothing_after_it_takes_all_defaults() {
    let empty = parse(&with("kv_cache:\nlimits:\nlinks:\nrestart:\nnodes:"), "demo.yaml");
    // `nodes:` is a list; nothing is not a list.
    assert_eq!(empty.unwrap_err().list.len(), 1);
    let empty = parse(&with("kv_cache:\nlimits:\nlinks:\nrestart:"), "demo.yaml").unwrap();
    assert_eq!(empty, parse(GOOD, "demo.yaml").unwrap());
}

#[test]
fn an_optional_value_with_nothing_after_it_is_absent() {
    let text = GOOD.replace("source: simulated", "source: simulated, context: ~");
    assert_eq!(parse(&text, "demo.yaml").unwrap().model.context, None);
}

#[test]
fn anchors_can_be_used() {
    let text = "\
name: demo
model: { source: simulated }
roles:
  tokenizer:
  router:
  prefill: &worker { running_max: 7 }
  decode: *worker
";
    let topology = parse(text, "demo.yaml").unwrap();
    assert_eq!(topology.roles.decode.unwrap().running_max, 7);
}

#[test]
fn no_nodes_means_this_machine() {
    let resolved = load(GOOD, "demo.yaml", &Catalogue::shipped()).unwrap();
    assert_eq!(resolved.nodes.len(), 1);
    assert_eq!(resolved.nodes[0].accelerator.as_str(), "cpu");
}

#[test]
fn a_path_names_the_model_after_its_last_part() {
    for (source, name) in [
        ("./models/tiny-llama/", "tiny-llama"),
        ("tiny.gguf", "tiny"),
        ("/data/m.gguf", "m"),
    ] {
        let text = GOOD.replace("simulated", source);
        let resolved = load(&text, "demo.yaml", &Catalogue::shipped()).unwrap();
        assert_eq!(resolved.model.origin, ModelOrigin::Path(source.into()));
        assert_eq!(resolved.model.served_names, [name]);
    }
}

#[test]
fn problems_found_later_get_their_places_too() {
    let document = Document::read(GOOD, "demo.yaml");
    assert!(document.topology().is_ok());
    let later = vec![
        Problem::new("late", "roles.decode.folds.0", "at a list item", "…"),
        Problem::new("late", "roles.decode.running_max", "at a field that is not there", "…"),
        Problem::new("late", "name", "at a scalar", "…"),
    ];
    let places: Vec<_> = document
        .locate(later)
        .list
        .iter()
        .map(|problem| problem.place.unwrap())
        .collect();
    let numbers: Vec<_> = places
        .iter()
        .map(|place| (place.line, place.column, place.len))
        .collect();
    assert_eq!(numbers, [(1, 7, 4), (6, 3, 6), (6, 21, 7)]);
}

#[test]
fn what_cannot_be_brought_up_yet_passes_the_checks_and_is_named() {
    let text = "\
name: epd
model: { source: simulated, quantization: nvfp4 }
nodes:
  - { name: box, accelerator: b300, count: 8, link_domain: nvl, labels: { zone: a } }
kv_cache: { dtype: fp8 }
roles:
  tokenizer:
  router: { port: 8000 }
  encoder: { node: box, devices: [0, 1], parallel: { tensor: 2 }, memory_fraction: 0.15, port: 30010 }
  prefill: { node: box, devices: [0, 1, 2, 3], parallel: { tensor: 4, expert: 4, sequence: 4 }, memory_fraction: 0.8 }
  decode: { node: box, devices: [4, 5, 6, 7], parallel: { tensor: 4, expert: 4 }, speculation: { tokens: 8 } }
links: { kv: nccl }
";
    let asked = |text: &str| {
        let topology = parse(text, "epd.yaml").unwrap_or_else(|problems| panic!("{problems}"));
        let problems = unsupported(&topology).into_iter();
        problems.map(|problem| problem.at).collect::<Vec<_>>()
    };
    assert_eq!(
        asked(text),
        ["roles.decode.speculation", "nodes.0.accelerator", "links.kv"]
    );
    // Where processor ranks stand in for the hardware, only what they cannot do is left.
    let emulated = format!("{text}emulate: {{ model: simulated }}\n");
    assert_eq!(asked(&emulated), ["roles.decode.speculation"]);
}

#[test]
fn any_text_is_read_without_a_panic() {
    let good = include_str!("../../local.yaml");
    for end in 0..good.len() {
        if good.is_char_boundary(end) {
            let _ = load(&good[..end], "cut.yaml", &Catalogue::shipped());
        }
    }
    for (index, byte) in good.bytes().enumerate().filter(|(_, byte)| byte.is_ascii_graphic()) {
        for other in [b'\t', b'{', b'"', b'9', b'*', b'-'] {
            let mut bytes = good.as_bytes().to_vec();
            assert_eq!(bytes[index], byte);
            bytes[index] = other;
            let text = String::from_utf8(bytes).unwrap();
            if let Err(problems) = load(&text, "changed.yaml", &Catalogue::shipped()) {
                assert!(!problems.list.is_empty() && !problems.to_string().is_empty());
            }
        }
    }
}

const BASE: &str = "\
name: base
model: { source: simulated, context: 100 }
nodes: [{ name: a }, { name: b }]
roles:
  tokenizer: { replicas: 3 }
  router: { port: 9000 }
  decode: { folds: [prefill], running_max: 7 }
";

fn extended(text: &str) -> Result<cluster_topologies::Topology, cluster_topologies::Problems> {
    let bases = |name: &str| (name == "base").then(|| BASE.to_owned());
    Document::read_with(text, "own.yaml", &bases).topology().cloned()
}

#[test]
fn a_file_that_extends_another_says_only_what_is_different() {
    let text = "extends: base\nname: own\nmodel: { context: }\nnodes: [{ name: c }]\n\
                roles: { tokenizer:, decode: { running_max: 8 }, cache: }\nkv_cache: { tiers: [{ host: 1GiB }] }\n";
    let own = extended(text).unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!(own.name.as_str(), "own");
    assert_eq!(own.model.context, None, "nothing after a key takes a value away");
    assert_eq!(own.nodes.len(), 1, "a list is replaced as a whole");
    assert_eq!(
        own.roles.tokenizer.unwrap().replicas,
        3,
        "nothing after a key leaves a mapping as it is"
    );
    let decode = own.roles.decode.unwrap();
    assert_eq!(
        (decode.running_max, decode.folds),
        (8, vec![cluster_topologies::RoleName::Prefill])
    );
    assert_eq!(own.roles.router.unwrap().port, 9000);
    assert!(own.roles.cache.is_some());
}

#[test]
fn what_is_wrong_with_an_inherited_value_stands_where_the_base_is_named() {
    let problems = extended("name: own\nextends: base\nroles: { decode: { step_tokens: 3 } }\n").unwrap_err();
    assert_eq!(problems.list[0].place.unwrap().line, 3);
    let problems = extended("name: own\nextends: base\nkv_cache: { tiers: [] }\nroles: { cache: }\n").unwrap_err();
    assert_eq!(
        (problems.list[0].rule, problems.list[0].place.unwrap().line),
        ("cache-without-tier", 4)
    );
    let inherited = extended("name: own\nextends: base\nnodes: []\nroles: { router: { port: 70000 } }\n").unwrap_err();
    assert_eq!(inherited.list[0].rule, "out-of-range");
}

#[test]
fn a_file_that_extends_another_needs_a_name_of_its_own_and_a_base_that_is_there() {
    let rules = |text: &str| {
        let problems = extended(text).unwrap_err();
        problems.list.iter().map(|problem| problem.rule).collect::<Vec<_>>()
    };
    assert_eq!(rules("extends: base\n"), ["missing-field"]);
    assert_eq!(rules("name: own\nextends: nothing\n"), ["unknown-base"]);
    assert_eq!(rules("name: own\nextends: [base]\n"), ["wrong-type"]);
    let endless = |_: &str| Some("name: loop\nextends: loop\n".to_owned());
    let problems = Document::read_with("name: own\nextends: loop\n", "own.yaml", &endless);
    assert_eq!(problems.topology().unwrap_err().list[0].rule, "endless-base");
    let broken = |_: &str| Some("a: [".to_owned());
    let problems = Document::read_with("name: own\nextends: broken\n", "own.yaml", &broken);
    assert_eq!(problems.topology().unwrap_err().list[0].rule, "faulty-base");
}
