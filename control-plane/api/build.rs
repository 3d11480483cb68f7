//! Compiles the .proto files in pure Rust, so that building needs no protoc.

use std::{env, error::Error, fs, path::PathBuf};

use prost::Message;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let files = protox::compile(["cluster/v1/control_plane.proto"], ["proto"])?;
    let descriptors = PathBuf::from(env::var("OUT_DIR")?).join("descriptors.bin");
    fs::write(descriptors, files.encode_to_vec())?;
    tonic_prost_build::configure().compile_fds(files)?;
    Ok(())
}
