//! The files that are shipped pass their checks, and the JSON Schema beside them is current.

use cluster_topologies::{
    Catalogue, ModelOrigin, Problem, RoleName, Span, Topology,
    catalogue::shipped_topologies,
    json_schema, load, parse,
    schema::{Policy, Tier},
    unsupported,
};

const SCHEMA: &str = include_str!("../../schema.json");

#[test]
fn every_shipped_topology_is_right_and_can_be_brought_up() {
    for (name, text) in shipped_topologies() {
        let resolved = load(text, name, &Catalogue::shipped()).unwrap_or_else(|problems| panic!("{problems}"));
        assert_eq!(resolved.name.as_str(), *name, "a file is launched by its name");
        let topology = parse(text, name).unwrap();
        assert_eq!(unsupported(&topology), Vec::<Problem>::new());
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
