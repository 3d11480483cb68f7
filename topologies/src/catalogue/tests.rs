use super::*;
use crate::Source;

#[test]
fn shipped_models_are_found_by_name() {
    let catalogue = Catalogue::shipped();
    for (name, _) in SHIPPED_MODELS {
        assert_eq!(catalogue.get(name).unwrap().name.as_str(), *name);
    }
}

#[test]
fn the_small_model_can_be_had_from_here_from_the_hub_and_from_the_package_index() {
    let catalogue = Catalogue::shipped();
    let model = catalogue.get("smollm2-135m-instruct").unwrap();
    assert_eq!(model.bytes, Some(98_362_432));
    let kinds: Vec<_> = model.sources.iter().map(std::mem::discriminant).collect();
    let [Source::Path(_), Source::Hf(hub), Source::Pypi(wheel)] = model.sources.as_slice() else {
        panic!("other sources: {kinds:?}");
    };
    assert_eq!(hub.revision, "main");
    assert_eq!(wheel.version, "0.1.2");
    assert!(wheel.member.ends_with(model.single_file().unwrap().file));
}

#[test]
fn a_model_of_the_same_name_makes_way() {
    let mut catalogue = Catalogue::shipped();
    let mut own = catalogue.get("smollm2-135m-instruct").unwrap().clone();
    own.context = 2048;
    catalogue.insert(own);
    assert_eq!(catalogue.get("smollm2-135m-instruct").unwrap().context, 2048);
    assert_eq!(catalogue.models().count(), SHIPPED_MODELS.len());
}

#[test]
fn everything_wrong_with_a_model_file_is_reported_at_once() {
    let (name, text) = SHIPPED_MODELS[0];
    let text = text
        .replace("b179c", "B179C")
        .replace("kv_heads: 3", "kv_heads: 4")
        .replace("bytes:", "size:");
    let problems = ModelFile::parse(&text, name).unwrap_err();
    let rules: Vec<_> = problems.list.iter().map(|problem| problem.rule).collect();
    assert_eq!(rules, ["unknown-field", "wrong-form", "uneven-heads"]);

    let text = SHIPPED_MODELS[0].1.replace("kv_heads: 3", "kv_heads: 4");
    let problems = ModelFile::parse(&text, name).unwrap_err();
    assert_eq!(problems.list[0].rule, "uneven-heads");
    assert_eq!(problems.list[0].place.unwrap().line, 14);
}

#[test]
fn shipped_topologies_are_found_by_name_and_by_path() {
    for asked in [
        "local",
        "local.yaml",
        "topologies/local.yaml",
        "./topologies/local.yaml",
    ] {
        assert!(shipped_topology(asked).unwrap().contains("name: local\n"), "{asked}");
    }
    assert_eq!(shipped_topology("remote"), None);
}

#[test]
fn a_word_or_a_slip_finds_shipped_topologies() {
    assert_eq!(similar_topologies("ep-b300"), ["epd-b300"]);
    assert_eq!(
        similar_topologies("topologies/small-batch.yaml"),
        ["muse-spark-gb300-small-batch"]
    );
    assert_eq!(similar_topologies("xeon"), ["muse-spark-xeon"]);
    assert!(similar_topologies("nowhere").is_empty());
    assert!(similar_topologies("").is_empty());
}

#[test]
fn every_shipped_topology_says_in_a_line_what_it_is_for() {
    for (name, text) in shipped_topologies() {
        let purpose = purpose(text);
        assert!((20..=120).contains(&purpose.len()), "{name}: {purpose}");
        assert!(!purpose.starts_with("The same"), "{name}: the same as what? {purpose}");
    }
    assert_eq!(purpose("name: mine\n# late"), "");
    assert_eq!(purpose("# One machine.\nname: mine"), "One machine");
}
