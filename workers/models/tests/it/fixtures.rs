//! The checkpoints under tests/fixtures and what they are expected to compute.

use std::{fs, path::PathBuf};

use cluster_models::{Arithmetic, KvDType, Loaded, Options, open};
use safetensors::SafeTensors;

use crate::muse::{TEXTS, recorded};

/// All checkpoints with recorded outputs, and where in their folder the model is.
pub(crate) const CHECKPOINTS: [(&str, &str); 7] = [
    ("llama-tiny", ""),
    ("llama-tiny-gguf", "model.gguf"),
    ("qwen2-tiny", ""),
    ("qwen3-tiny", ""),
    ("qwen3-moe-tiny", ""),
    ("gemma3-tiny", ""),
    ("muse-spark-tiny", ""),
];

pub(crate) fn folder(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "fixtures", name].iter().collect()
}

pub(crate) fn path(name: &str) -> PathBuf {
    let (_, file) = CHECKPOINTS.iter().find(|(known, _)| *known == name).unwrap();
    folder(name).join(file)
}

/// No rounding anywhere but in the weights.
pub(crate) fn exact() -> Options {
    Options {
        arithmetic: Arithmetic::Exact,
        kv_dtype: KvDType::F32,
        ..Options::new(2)
    }
}

pub(crate) fn load(name: &str, options: Options) -> Loaded {
    open(&path(name), options).unwrap()
}

/// What was recorded for one prompt.
pub(crate) struct Golden {
    pub(crate) tokens: Vec<u32>,
    pub(crate) positions: Vec<usize>,
    /// One row per position.
    pub(crate) logits: Vec<Vec<f32>>,
    pub(crate) greedy_tokens: Vec<u32>,
    /// One row for each of `GREEDY_STEPS`.
    pub(crate) greedy_logits: Vec<Vec<f32>>,
}

/// The steps of the greedy continuation whose logits were recorded.
pub(crate) const GREEDY_STEPS: [usize; 5] = [0, 1, 7, 15, 31];

/// The recorded prompts of a checkpoint.
pub(crate) fn goldens(name: &str) -> Vec<Golden> {
    let bytes = fs::read(folder(name).join("golden.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    (0..4)
        .map(|prompt| {
            let integers = |what: &str| integers(&tensors, &format!("p{prompt}.{what}"));
            let rows = |what: &str| rows(&tensors, &format!("p{prompt}.{what}"));
            Golden {
                tokens: integers("tokens").into_iter().map(|token| token as u32).collect(),
                positions: integers("positions")
                    .into_iter()
                    .map(|position| position as usize)
                    .collect(),
                logits: rows("logits"),
                greedy_tokens: integers("greedy_tokens")
                    .into_iter()
                    .map(|token| token as u32)
                    .collect(),
                greedy_logits: rows("greedy_logits"),
            }
        })
        .collect()
}

/// The tokens of every recorded prompt.
pub(crate) fn prompts(name: &str) -> Vec<Vec<u32>> {
    if name == "muse-spark-tiny" {
        return TEXTS.map(|text| recorded(text, None).tokens).into();
    }
    goldens(name).into_iter().map(|golden| golden.tokens).collect()
}

/// A long prompt.
pub(crate) fn long_prompt(name: &str) -> Vec<u32> {
    let mut prompts = prompts(name);
    let last = prompts.pop().unwrap();
    // Muse's are shorter than others' and follow each other well enough.
    if name == "muse-spark-tiny" {
        [&*prompts[2], &last].concat()
    } else {
        last
    }
}

fn integers(tensors: &SafeTensors<'_>, name: &str) -> Vec<i64> {
    let bytes = tensors.tensor(name).unwrap().data();
    bytes
        .chunks_exact(8)
        .map(|value| i64::from_le_bytes(value.try_into().unwrap()))
        .collect()
}

pub(crate) fn rows(tensors: &SafeTensors<'_>, name: &str) -> Vec<Vec<f32>> {
    let tensor = tensors.tensor(name).unwrap();
    let values = tensor
        .data()
        .chunks_exact(4)
        .map(|value| f32::from_le_bytes(value.try_into().unwrap()));
    let values: Vec<f32> = values.collect();
    values.chunks_exact(tensor.shape()[1]).map(<[f32]>::to_vec).collect()
}
