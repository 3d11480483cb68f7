use crate::program::Home;

const WEIGHTS: &str = "not really weights";

fn model_file(path: &str, sha256: &str) -> String {
    format!(
        "name: tiny
served_names: [tiny]
family: smollm2
format: gguf
file: tiny.gguf
bytes: {}
sha256: {sha256}
license: Apache-2.0
context: 128
shape: {{ layers: 1, heads: 1, kv_heads: 1, head_dim: 8, width: 8, vocabulary: 16 }}
sources:
  - path: {path}
",
        WEIGHTS.len()
    )
}

/// Of WEIGHTS, by sha256sum.
const SHA256: &str = "6bc9509551b471fd7d25a12b99a9d825e866b1ad02f9f9b5071757ab66d30e68";

#[test]
fn a_model_file_of_ones_own_is_pulled_by_path_and_by_name() {
    let home = Home::new();
    let weights = home.write("weights/tiny.gguf", WEIGHTS);
    home.write("models/tiny.yaml", model_file("../weights/tiny.gguf", SHA256));
    let from_models = format!("{}\n", home.path("models/../weights/tiny.gguf").display());
    assert_eq!(home.cluster(&["pull", "models/tiny.yaml"]).ok(), from_models);
    assert_eq!(home.cluster(&["pull", "tiny"]).ok(), from_models);

    home.write("models/tiny.yaml", model_file(weights.to_str().unwrap(), SHA256));
    let pulled: serde_json::Value = serde_json::from_str(&home.cluster(&["pull", "tiny", "--json"]).ok()).unwrap();
    let expected = serde_json::json!({
        "name": "tiny", "path": weights, "bytes": WEIGHTS.len(), "sha256": SHA256,
    });
    assert_eq!(pulled, expected);
}

#[test]
fn what_cannot_be_had_says_what_was_tried_and_where_to_put_it() {
    let home = Home::new();
    home.write("weights/tiny.gguf", WEIGHTS);
    let other = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    home.write("models/tiny.yaml", model_file("../weights/tiny.gguf", other));
    let expected = format!(
        "error: cannot get tiny.gguf (18 bytes, sha256 {other})
  tried path {}
    its sha256 is {SHA256} instead of {other}
put the file into {} by hand, or make one of its sources reachable
",
        home.path("models/../weights/tiny.gguf").display(),
        home.path(".cache/cluster/models/tiny").display(),
    );
    assert_eq!(home.cluster(&["pull", "tiny"]).failed(1), expected);
}

#[test]
fn an_unknown_model_names_the_known() {
    assert_eq!(
        Home::new().cluster(&["pull", "nothing"]).failed(2),
        "error: there is no model 'nothing'\n  help: name one of deepseek-v4-flash, deepseek-v4-pro, muse-nano, \
         muse-spark-open-816b-a42b, smollm2-135m-instruct, or the path of a model file\n"
    );
}

#[test]
fn a_broken_model_file_is_reported_like_a_topology() {
    let home = Home::new();
    home.write("models/tiny.yaml", model_file("./a", "beef"));
    let err = home.cluster(&["pull", "models/tiny.yaml"]).failed(2);
    assert!(err.starts_with("models/tiny.yaml:7:9: "), "{err}");
}
