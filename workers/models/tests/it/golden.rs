//! Recorded logits and greedy continuations of published implementations.

use std::fs;

use cluster_models::{Arithmetic, KvDType, Options, open};
use rstest::rstest;
use safetensors::SafeTensors;

use crate::{
    fixtures::{GREEDY_STEPS, exact, folder, goldens, load, path, rows},
    sequences::{Sequences, arg_max, largest_difference},
};

/// What the recordings allow an implementation in 32-bit floats.
const TOLERANCE: f32 = 2e-4;

#[rstest]
#[case("llama-tiny")]
#[case("llama-tiny-gguf")]
#[case("qwen2-tiny")]
#[case("qwen3-tiny")]
#[case("qwen3-moe-tiny")]
#[case("gemma3-tiny")]
fn logits_and_greedy_continuations_match(#[case] name: &str) {
    let mut sequences = Sequences::new(load(name, exact()).model().unwrap(), 4);
    for (seq, golden) in goldens(name).iter().enumerate() {
        let seq = seq as u64;
        let rows = sequences.run(seq, &golden.tokens, &[golden.tokens.len()]);
        for (position, expected) in golden.positions.iter().zip(&golden.logits) {
            let difference = largest_difference(&rows[*position], expected);
            assert!(
                difference < TOLERANCE,
                "prompt {seq}, position {position}: {difference}"
            );
        }
        let mut row = rows.last().unwrap().clone();
        for (step, expected) in golden.greedy_tokens.iter().enumerate() {
            assert_eq!(arg_max(&row), *expected, "prompt {seq}, step {step}");
            if let Some(recorded) = GREEDY_STEPS.iter().position(|recorded| *recorded == step) {
                let difference = largest_difference(&row, &golden.greedy_logits[recorded]);
                assert!(difference < TOLERANCE, "prompt {seq}, step {step}: {difference}");
            }
            row = sequences.append(seq, golden.tokens.len() + step, *expected);
        }
    }
}

#[test]
fn llama3_scaling_of_positions_matches() {
    let copy = tempfile::tempdir().unwrap();
    let original = folder("llama-tiny");
    let text = fs::read_to_string(original.join("config.json")).unwrap();
    let mut config: serde_json::Value = serde_json::from_str(&text).unwrap();
    let rope = fs::read_to_string(original.join("llama3-rope-parameters.json")).unwrap();
    config["rope_parameters"] = serde_json::from_str(&rope).unwrap();
    fs::write(copy.path().join("config.json"), config.to_string()).unwrap();
    fs::copy(
        original.join("model.safetensors"),
        copy.path().join("model.safetensors"),
    )
    .unwrap();

    let model = open(copy.path(), exact()).unwrap().model().unwrap();
    let golden = goldens("llama-tiny").pop().unwrap();
    let computed = Sequences::new(model, 1).run(0, &golden.tokens, &[golden.tokens.len()]);

    let bytes = fs::read(original.join("golden.safetensors")).unwrap();
    let expected = rows(&SafeTensors::deserialize(&bytes).unwrap(), "llama3rope.p3.logits");
    for (position, expected) in golden.positions.iter().zip(&expected) {
        let difference = largest_difference(&computed[*position], expected);
        assert!(difference < TOLERANCE, "position {position}: {difference}");
    }
}

/// Rounding activations to 8 bits and pages to 16 moves the logits of a random tiny model by some percent of their range;
/// two digits and wide pages move them by as little as another order of summation does.
#[test]
fn serving_arithmetic_stays_near_the_exact_one() {
    let one_digit = relative_error(Arithmetic::Int8, KvDType::F16);
    assert!(one_digit > 0.0 && one_digit < 0.05, "8 bits: {one_digit}");
    let two_digits = relative_error(Arithmetic::Int16, KvDType::F32);
    assert!(two_digits > 0.0 && two_digits < 2e-4, "16 bits: {two_digits}");
    let served = relative_error(Arithmetic::Int16, KvDType::F16);
    assert!(served < 0.005, "16 bits, 16-bit pages: {served}");
}

/// How far the logits of llama-tiny-gguf are from the golden ones, relative to their size.
fn relative_error(arithmetic: Arithmetic, kv_dtype: KvDType) -> f64 {
    let golden = goldens("llama-tiny-gguf").pop().unwrap();
    let options = Options {
        arithmetic,
        kv_dtype,
        ..Options::new(1)
    };
    let model = open(&path("llama-tiny-gguf"), options).unwrap().model().unwrap();
    let computed = Sequences::new(model, 1).run(0, &golden.tokens, &[golden.tokens.len()]);
    let (mut error, mut power) = (0.0, 0.0);
    for (position, expected) in golden.positions.iter().zip(&golden.logits) {
        for (computed, expected) in computed[*position].iter().zip(expected) {
            error += f64::from(computed - expected).powi(2);
            power += f64::from(*expected).powi(2);
        }
    }
    (error / power).sqrt()
}
