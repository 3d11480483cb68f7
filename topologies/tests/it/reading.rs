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
