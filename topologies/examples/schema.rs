//! Prints the JSON Schema of topology files: `cargo run -p cluster-topologies --example schema > topologies/schema.json`.
#![expect(clippy::print_stdout, reason = "the schema is the output")]

fn main() {
    let schema = serde_json::to_string_pretty(&cluster_topologies::json_schema());
    println!("{}", schema.expect("a schema is plain data"));
}
