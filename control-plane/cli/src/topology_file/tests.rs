use cluster_topologies::{ModelOrigin, Source};

use super::*;

const TOPOLOGY: &str = "
name: mine
model: { source: tiny }
roles: { tokenizer: , router: , decode: { folds: [prefill] } }
";

const MODEL: &str = "
name: tiny
served_names: [tiny]
family: smollm2
format: gguf
file: tiny.gguf
bytes: 5
sha256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
license: Apache-2.0
context: 128
shape: { layers: 1, heads: 1, kv_heads: 1, head_dim: 8, width: 8, vocabulary: 16 }
sources:
  - path: ../weights/tiny.gguf
  - path: /data/tiny.gguf
";

#[test]
fn a_shipped_topology_is_found_by_name_and_by_path() {
    for name in ["local", "local.yaml", "nowhere/local.yaml"] {
        let resolved = TopologyFile::read(Path::new(name)).unwrap().resolve().unwrap();
        assert_eq!(resolved.name.as_str(), "local");
    }
}

#[test]
fn a_name_that_means_nothing_brings_the_nearest_ones() {
    let cases = [
        ("nowhere.yaml", "name a topology file, or a shipped one:"),
        ("ebd-b300", "did you mean 'epd-b300'?"),
        ("local-", "did you mean 'local-pd'?"),
        ("flash-b200", "did you mean one of deepseek-v4-flash-b200-balanced, "),
    ];
    for (name, remedy) in cases {
        let failure = TopologyFile::read(Path::new(name)).unwrap_err();
        let expected = format!("error: there is no file {name}\n  help: {remedy}");
        let said = failure.to_string();
        assert!(said.starts_with(&expected), "{said}");
        assert!(said.ends_with(" 'cluster topologies' lists what is shipped"), "{said}");
        assert_eq!(failure.exit_code(), 2);
    }
}

#[test]
fn model_files_beside_the_topology_are_known_and_their_paths_start_there() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("models")).unwrap();
    fs::write(folder.path().join("models/tiny.yaml"), MODEL).unwrap();
    fs::write(folder.path().join("models/notes.txt"), "no model").unwrap();
    fs::write(folder.path().join("mine.yaml"), TOPOLOGY).unwrap();

    let file = TopologyFile::read(&folder.path().join("mine.yaml")).unwrap();
    let ModelOrigin::File(model) = file.resolve().unwrap().model.origin else {
        panic!("a model file was declared")
    };
    let from_here = folder.path().join("models/../weights/tiny.gguf");
    assert_eq!(
        model.sources,
        [
            Source::Path(from_here.to_str().unwrap().into()),
            Source::Path("/data/tiny.gguf".into())
        ]
    );
}
