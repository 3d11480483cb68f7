//! The tiny Muse Spark with experts in every quantized format computes what it computes with the numbers they stand for.

use std::{fs, path::Path};

use cluster_models::{Options, Ranks, open};
use rstest::rstest;
use safetensors::SafeTensors;
use serde_json::{Value, json};

use crate::{
    fixtures::{exact, folder},
    muse::recorded,
    sequences::{Sequences, largest_difference},
};
use writer::{BLOCK, GROUP, Stored, Style, Weight};

#[path = "../../src/quantized/tests/writer.rs"]
mod writer;

const EXPERTS: usize = 8;
const WIDTH: usize = 64;
/// The experts' inner width, and how wide formats with blocks of 32 need it to be.
const INNER: usize = 48;
const INNER_PADDED: usize = 64;

/// The experts of a layer, their inner width filled up with zeros.
fn experts(file: &SafeTensors<'_>, prefix: &str, inner: usize) -> Vec<[Weight; 3]> {
    let numbers = |name: &str| -> Vec<f32> {
        let tensor = file.tensor(&format!("{prefix}.{name}")).unwrap();
        let (numbers, _) = tensor.data().as_chunks::<4>();
        numbers.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
    };
    let (gates_ups, downs) = (numbers("gate_up_proj"), numbers("down_proj"));
    let split = |index: usize| {
        let both = &gates_ups[index * 2 * INNER * WIDTH..(index + 1) * 2 * INNER * WIDTH];
        let down = &downs[index * WIDTH * INNER..(index + 1) * WIDTH * INNER];
        let (gate, up) = both.split_at(INNER * WIDTH);
        [
            padded(gate, WIDTH, [inner, WIDTH]),
            padded(up, WIDTH, [inner, WIDTH]),
            padded(down, INNER, [WIDTH, inner]),
        ]
    };
    (0..EXPERTS).map(split).collect()
}

/// A matrix of `cols` columns with zeros below and to the right.
fn padded(numbers: &[f32], cols: usize, [rows_padded, cols_padded]: [usize; 2]) -> Weight {
    let mut values = vec![0.0; rows_padded * cols_padded];
    for (to, row) in values.chunks_exact_mut(cols_padded).zip(numbers.chunks_exact(cols)) {
        to[..cols].copy_from_slice(row);
    }
    Weight {
        rows: rows_padded,
        cols: cols_padded,
        values,
    }
}

/// Writes the checkpoint twice: with quantized experts, and with the numbers that they stand for.
fn write_both(style: Style, inner: usize, quantized: &Path, plain: &Path) {
    let bytes = fs::read(folder("muse-spark-tiny").join("model.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for (name, tensor) in file.tensors() {
        if let Some(prefix) = name.strip_suffix(".gate_up_proj") {
            let mut experts = experts(&file, prefix, inner);
            ours.extend(writer::write(style, prefix, &mut experts));
            theirs.extend(writer::write(Style::Floats, prefix, &mut experts));
        } else if let Some(name) = quantized_too(style, &name) {
            let [rows, cols] = [tensor.shape()[0], tensor.shape()[1]];
            let (numbers, _) = tensor.data().as_chunks::<4>();
            let values = numbers.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
            let mut weight = Weight { rows, cols, values };
            ours.extend(writer::write_linear(style, name, &mut weight));
            theirs.extend(writer::write_linear(Style::Floats, name, &mut weight));
        } else if !name.ends_with("experts.down_proj") {
            let copy = || Stored::new(tensor.dtype(), tensor.shape().to_vec(), tensor.data().to_vec());
            ours.push((name.clone(), copy()));
            theirs.push((name, copy()));
        }
    }
    let config = fs::read(folder("muse-spark-tiny").join("config.json")).unwrap();
    let mut config: Value = serde_json::from_slice(&config).unwrap();
    config["text_config"]["moe_intermediate_size"] = json!(inner);
    save(plain, &config, &theirs);
    config["quantization_config"] = json!({ "weight_block_size": BLOCK, "group_size": GROUP });
    save(quantized, &config, &ours);
}

/// The name, without its ending, of a projection around experts, where the style quantizes these as well.
fn quantized_too(style: Style, name: &str) -> Option<&str> {
    let name = name.strip_suffix(".weight")?;
    let pooling = name.ends_with(".pre_expert_proj") || name.ends_with(".post_expert_proj");
    (pooling && matches!(style, Style::Int4OwnFused | Style::Mxfp4Own | Style::Fp8Own)).then_some(name)
}

fn save(folder: &Path, config: &Value, tensors: &[(String, Stored)]) {
    fs::write(folder.join("config.json"), config.to_string()).unwrap();
    let views = tensors.iter().map(|(name, tensor)| (name.as_str(), tensor));
    safetensors::serialize_to_file(views, None, &folder.join("model.safetensors")).unwrap();
}

fn logits(folder: &Path, options: Options, tokens: &[u32]) -> Vec<Vec<f32>> {
    let loaded = open(folder, options).unwrap();
    Sequences::new(loaded.model().unwrap(), 1).run(0, tokens, &[1000])
}

#[rstest]
#[case(Style::Nvfp4Stacked, INNER)]
#[case(Style::Nvfp4Own, INNER)]
#[case(Style::Mxfp4Own, INNER_PADDED)]
#[case(Style::Fp8Own, INNER)]
#[case(Style::Fp8Stacked, INNER)]
#[case(Style::Int4Stacked, INNER)]
#[case(Style::Int4OwnFused, INNER)]
#[case(Style::Int4Underscore, INNER)]
fn quantized_experts_compute_what_their_numbers_do(#[case] style: Style, #[case] inner: usize) {
    let (quantized, plain) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write_both(style, inner, quantized.path(), plain.path());
    let prompt = recorded("prompt1", None);
    let expected = logits(plain.path(), exact(), &prompt.tokens);
    let largest = expected
        .iter()
        .flatten()
        .fold(0.0f32, |largest, x| largest.max(x.abs()));
    let compare = |options: Options, tolerance: f32| {
        let computed = logits(quantized.path(), options, &prompt.tokens);
        for (position, (computed, expected)) in computed.iter().zip(&expected).enumerate() {
            let difference = largest_difference(computed, expected);
            assert!(
                difference <= largest * tolerance,
                "{style:?} at {position}: {difference} of {largest}"
            );
        }
    };
    compare(exact(), 1e-3);
    // Slices of every expert, cut at whole groups; whole experts; those, and tokens.
    for [tensor, expert, sequence] in [[2, 1, 1], [3, 3, 1], [2, 2, 2]] {
        let ranks = Ranks {
            tensor,
            expert,
            sequence,
        };
        compare(Options { ranks, ..exact() }, 1e-3);
    }
    // The quantization is not nothing: the model with its original numbers answers differently.
    let original = prompt.logits.iter().zip(&expected);
    let changed = original
        .map(|(original, expected)| largest_difference(original, expected))
        .fold(0.0, f32::max);
    assert!(
        changed > largest * 1e-3,
        "{style:?} changed the logits by {changed} of {largest} only"
    );
}
