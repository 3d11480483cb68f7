//! The files that are shipped pass their checks, and the JSON Schema beside them is current.

use cluster_topologies::{
    Catalogue, Document, ModelOrigin, RoleName, Span, Topology,
    catalogue::shipped_topologies,
    json_schema, load, parse,
    schema::{Policy, Tier},
    unsupported,
};

const SCHEMA: &str = include_str!("../../schema.json");

/// What cannot be brought up yet, and why.
const WAITING: &[(&str, &str)] = &[
    ("muse-spark-b300-latency", "roles.decode.speculation"),
    ("deepseek-v4-flash-b200-balanced", "roles.decode.parallel.data"),
    ("deepseek-v4-flash-b200-latency", "roles.decode.speculation"),
    ("deepseek-v4-flash-b200-throughput", "roles.decode.parallel.data"),
    ("deepseek-v4-pro-b200-agentic-dp8", "roles.decode.parallel.data"),
    ("deepseek-v4-pro-b200-balanced", "roles.decode.parallel.data"),
    ("deepseek-v4-pro-b200-latency", "roles.decode.speculation"),
    ("deepseek-v4-pro-b200-throughput", "roles.decode.parallel.data"),
    ("deepseek-v4-pro-mi355x-pd-256", "roles.prefill.parallel.data"),
];

#[test]
fn every_shipped_topology_is_right_and_most_can_be_brought_up() {
    assert!(shipped_topologies().len() >= 30);
    for (name, text) in shipped_topologies() {
        let document = Document::read(text, name);
        let resolved = document.resolve(&Catalogue::shipped());
        let resolved = resolved.unwrap_or_else(|problems| panic!("{problems}"));
        assert_eq!(resolved.name.as_str(), *name, "a file is launched by its name");
        let refused = unsupported(document.topology().unwrap());
        let waiting = WAITING.iter().find(|(waiting, _)| waiting == name);
        let fields: Vec<_> = refused.iter().map(|problem| problem.at.as_str()).collect();
        assert_eq!(fields.first().copied(), waiting.map(|(_, field)| *field), "{name}");
    }
}

#[test]
fn every_topology_for_other_hardware_names_a_stand_in() {
    for (name, text) in shipped_topologies() {
        let resolved = load(text, name, &Catalogue::shipped()).unwrap();
        let stand_in = resolved.emulate.as_ref().map(|stand_in| stand_in.name.as_str());
        assert_eq!(stand_in, resolved.needs_hardware().then_some("muse-nano"), "{name}");
    }
}

#[test]
fn every_file_beside_the_sources_is_shipped() {
    let shipped: Vec<&str> = shipped_topologies().iter().map(|(name, _)| *name).collect();
    let catalogue = Catalogue::shipped();
    let models: Vec<&str> = catalogue.models().map(|model| model.name.as_str()).collect();
    let accelerators: Vec<&str> = catalogue.accelerators().map(|file| file.name.as_str()).collect();
    for (folder, shipped) in [("", shipped), ("models", models), ("accelerators", accelerators)] {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|ending| ending == "yaml") {
                let stem = path.file_stem().unwrap().to_str().unwrap();
                assert!(shipped.contains(&stem), "{} is not in the catalogue", path.display());
            }
        }
    }
}

#[test]
fn local_serves_the_small_model_with_prefill_inside_decode() {
    let resolved = load(include_str!("../../local.yaml"), "local.yaml", &Catalogue::shipped()).unwrap();
    assert!(!resolved.is_split());
    assert_eq!(resolved.decode.folds, [RoleName::Prefill]);
    assert_eq!((resolved.router.port, resolved.router.policy), (8000, Policy::KvAware));
    assert!(resolved.cache.is_some());
    assert!(matches!(resolved.kv_cache.tiers.as_slice(), [Tier::Host(_)]));
    assert_eq!(resolved.model.served_names[0], "smollm2-135m-instruct");
    assert!(matches!(&resolved.model.origin, ModelOrigin::File(file) if file.context == 8192));
    assert_eq!(resolved.limits.timeout, Span::from_s(600));
}

#[test]
fn local_pd_computes_prompts_apart() {
    let resolved = load(
        include_str!("../../local-pd.yaml"),
        "local-pd.yaml",
        &Catalogue::shipped(),
    )
    .unwrap();
    let workers: Vec<_> = resolved.workers().map(|(role, _)| role).collect();
    assert_eq!(workers, [RoleName::Prefill, RoleName::Decode]);
    assert!(resolved.decode.folds.is_empty());
}

#[test]
fn a_topology_survives_being_written_as_json_and_read_again() {
    for (name, text) in shipped_topologies() {
        let topology = parse(text, name).unwrap();
        let json = serde_json::to_string(&topology).unwrap();
        assert_eq!(serde_json::from_str::<Topology>(&json).unwrap(), topology);
    }
}

#[test]
fn the_schema_for_editors_is_current() {
    let current = serde_json::to_string_pretty(&json_schema()).unwrap() + "\n";
    assert!(
        current == SCHEMA,
        "topologies/schema.json is old; write it anew with 'cluster schema > topologies/schema.json'"
    );
}
