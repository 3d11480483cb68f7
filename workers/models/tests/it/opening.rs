//! What `open` and `inspect` say about good and bad models.

use std::{fs, path::Path};

use cluster_models::{Arithmetic, KvDType, Options, TokenizerSource, inspect, open};

use crate::fixtures::{CHECKPOINTS, exact, folder, load, path};

#[test]
fn inspecting_gives_the_sizes_without_loading() {
    for (name, _) in CHECKPOINTS {
        let inspected = inspect(&path(name)).unwrap();
        let loaded = load(name, exact());
        assert_eq!(inspected.spec, loaded.spec);
        assert_eq!(inspected.facts.parameters, loaded.facts.parameters);
        let per_weight = inspected.facts.weight_bytes as f64 / inspected.facts.parameters as f64;
        assert!((0.5..=4.0).contains(&per_weight), "{name}: {per_weight} bytes a weight");
    }
    let facts = inspect(&path("qwen2-tiny")).unwrap().facts;
    assert_eq!(facts.parameters, 133_952, "as the index of the checkpoint says");
    assert_eq!(facts.weight_bytes, 535_808);
    assert_eq!(facts.kv_bytes_per_token, 3 * 2 * 2 * 16 * 2);
}

#[test]
fn the_tokenizer_is_found_where_the_model_is() {
    let TokenizerSource::Gguf(file) = load("llama-tiny-gguf", exact()).tokenizer else {
        panic!("a GGUF file has its tokenizer inside");
    };
    assert_eq!(file.require::<&str>("tokenizer.ggml.model").unwrap(), "gpt2");
    assert_eq!(file.require::<Vec<&str>>("tokenizer.ggml.tokens").unwrap().len(), 320);
    assert_eq!(
        file.require::<Vec<i32>>("tokenizer.ggml.token_type").unwrap()[..4],
        [2, 3, 3, 1]
    );
    assert_eq!(file.get::<bool>("tokenizer.ggml.add_bos_token").unwrap(), Some(false));
    let TokenizerSource::Folder(found) = load("llama-tiny", exact()).tokenizer else {
        panic!("a folder has its tokenizer beside the weights");
    };
    assert_eq!(found, folder("llama-tiny"));
}

#[test]
fn fingerprints_tell_apart_what_computes_differently() {
    let base = load("llama-tiny-gguf", exact());
    assert_eq!(load("llama-tiny-gguf", exact()).info(), base.info());
    let int8 = Options {
        arithmetic: Arithmetic::Int8,
        ..exact()
    };
    let int8 = load("llama-tiny-gguf", int8);
    assert_ne!(int8.fingerprint(), base.fingerprint());
    assert_eq!(int8.info().layout, base.info().layout, "pages have the same form");
    let half = Options {
        kv_dtype: KvDType::F16,
        ..exact()
    };
    let half = load("llama-tiny-gguf", half);
    assert_ne!(half.fingerprint(), base.fingerprint());
    assert_ne!(half.info().layout, base.info().layout);
    assert_ne!(load("llama-tiny", exact()).fingerprint(), base.fingerprint());
}

#[test]
fn one_flipped_bit_of_a_weight_changes_the_fingerprint() {
    let folder = tempfile::tempdir().unwrap();
    let changed = folder.path().join("changed.gguf");
    let mut bytes = fs::read(path("llama-tiny-gguf")).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&changed, bytes).unwrap();
    let changed = open(&changed, exact()).unwrap();
    assert_ne!(changed.fingerprint(), load("llama-tiny-gguf", exact()).fingerprint());
}

#[test]
fn messages_name_the_file_and_the_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let message = |path: &Path| {
        open(path, exact())
            .unwrap_err()
            .to_string()
            .replace(folder.path().to_str().unwrap(), "DIR")
    };

    assert_eq!(
        message(&at("absent.gguf")),
        "cannot read DIR/absent.gguf: No such file or directory (os error 2)"
    );
    assert_eq!(
        message(folder.path()),
        "DIR is neither a .gguf file nor a folder with config.json and model.safetensors"
    );
    fs::write(at("config.json"), r#"{"model_type": "mamba2"}"#).unwrap();
    assert_eq!(
        message(folder.path()),
        "DIR/config.json: 'model_type' is 'mamba2', which is not supported; supported are llama, qwen2, qwen3, qwen3_moe, \
         gemma3_text, muse_spark"
    );
    fs::write(at("short.gguf"), b"GGUF\x03\0\0\0").unwrap();
    assert_eq!(
        message(&at("short.gguf")),
        "DIR/short.gguf: file ends early: 8 bytes at offset 8, 0 are there"
    );
    fs::copy(path("llama-tiny").join("config.json"), at("config.json")).unwrap();
    fs::copy(path("qwen3-tiny").join("model.safetensors"), at("model.safetensors")).unwrap();
    assert_eq!(
        message(folder.path()),
        "DIR: tensor 'model.layers.0.self_attn.q_proj.weight' is [128, 64], expected [64, 64]"
    );
}

#[test]
fn a_tensor_that_nobody_reads_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = fs::read_to_string(path("qwen3-tiny").join("config.json")).unwrap();
    config = config.replace("\"num_hidden_layers\": 4", "\"num_hidden_layers\": 3");
    fs::write(folder.path().join("config.json"), config).unwrap();
    fs::copy(
        path("qwen3-tiny").join("model.safetensors"),
        folder.path().join("model.safetensors"),
    )
    .unwrap();
    let error = open(folder.path(), exact()).unwrap_err().to_string();
    assert!(
        error.ends_with(
            "the file has 11 tensors that a qwen3 model does not use, among them 'model.layers.3.input_layernorm.weight'"
        ),
        "{error}"
    );
}

#[test]
fn impossible_options_are_refused() {
    let refused = |options| open(&path("llama-tiny"), options).unwrap_err().to_string();
    let threads = Options { threads: 0, ..exact() };
    assert_eq!(refused(threads), "option threads is 0: at least 1 is needed");
    let block_tokens = Options {
        block_tokens: 24,
        ..exact()
    };
    assert_eq!(
        refused(block_tokens),
        "option block_tokens is 24: it must be a multiple of 16"
    );
}
