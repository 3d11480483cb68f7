//! The one check of form that fails a build: crates import downwards only, and core crates stay free of the outside world.
//!
//! The layers stand in the root `Cargo.toml` under `[workspace.metadata.layers]`; the imports come from `cargo metadata`.

use std::{collections::BTreeMap, path::Path, process::Command};

use serde_json::Value;

/// What a core crate may not import directly: things that await, read a clock, draw a random number or open a socket.
const NOT_FOR_CORE: [&str; 14] = [
    "tokio",
    "tokio-util",
    "tokio-stream",
    "futures",
    "async-trait",
    "ractor",
    "axum",
    "hyper",
    "tonic",
    "etcd-client",
    "async-nats",
    "rand",
    "getrandom",
    "opentelemetry",
];

struct Layer {
    number: u64,
    core: bool,
}

fn metadata() -> Value {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("chaos-tests lies in the workspace");
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root)
        .output()
        .expect("cargo runs, since it runs this test");
    assert!(
        output.status.success(),
        "cargo metadata: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON")
}

fn layers(metadata: &Value) -> BTreeMap<&str, Layer> {
    let table = metadata["metadata"]["layers"]
        .as_object()
        .expect("the root manifest has the table of layers");
    table
        .iter()
        .map(|(name, row)| {
            let number = row["layer"].as_u64().expect("each row has a layer");
            (
                name.as_str(),
                Layer {
                    number,
                    core: row["kind"] == "core",
                },
            )
        })
        .collect()
}

/// (crate, import) pairs of ordinary dependencies; what only tests use does not shape the architecture.
fn imports(metadata: &Value) -> Vec<(&str, &str)> {
    let packages = metadata["packages"].as_array().expect("packages");
    packages
        .iter()
        .flat_map(|package| {
            let name = package["name"].as_str().expect("a package has a name");
            let dependencies = package["dependencies"].as_array().expect("dependencies");
            dependencies
                .iter()
                .filter(|dependency| dependency["kind"].is_null())
                .map(move |dependency| (name, dependency["name"].as_str().expect("a dependency has a name")))
        })
        .collect()
}

/// Every import that breaks a rule, as a sentence.
fn violations(layers: &BTreeMap<&str, Layer>, imports: &[(&str, &str)]) -> Vec<String> {
    let mut found = Vec::new();
    for (name, import) in imports {
        let Some(layer) = layers.get(name) else {
            found.push(format!("{name} has no row in [workspace.metadata.layers]"));
            continue;
        };
        match layers.get(import) {
            Some(other) if other.number >= layer.number => found.push(format!(
                "{name} (layer {}) imports {import} (layer {}): imports go downwards only",
                layer.number, other.number
            )),
            None if layer.core && NOT_FOR_CORE.contains(import) => {
                found.push(format!(
                    "{name} is a core crate and imports {import}: take it as an argument instead"
                ));
            }
            _ => {}
        }
    }
    found
}

#[test]
fn crates_import_downwards_only() {
    let metadata = metadata();
    let layers = layers(&metadata);
    let imports = imports(&metadata);
    assert!(
        imports.iter().any(|(name, _)| *name == "cluster-roles"),
        "the workspace was not read"
    );
    let found = violations(&layers, &imports);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn the_check_finds_what_it_forbids() {
    let layers = BTreeMap::from([
        ("low", Layer { number: 0, core: true }),
        ("side", Layer { number: 0, core: false }),
        ("high", Layer { number: 1, core: false }),
    ]);
    let found = violations(
        &layers,
        &[
            ("low", "high"),
            ("low", "side"),
            ("low", "tokio"),
            ("high", "low"),
            ("new", "low"),
        ],
    );
    assert_eq!(found.len(), 4, "{found:#?}");
}
