//! Muse Spark: recorded logits and greedy continuations of text, pictures, films and sounds.

use std::{fs, path::PathBuf};

use cluster_engine::{Embedded, SeqId, Wanted};
use cluster_models::{KvDType, Options, Ranks, open};
use rstest::rstest;
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use serde::Deserialize;

use crate::{
    fixtures::{exact, folder, load, rows},
    sequences::{Part, Sequences, arg_max, largest_difference},
};

/// What the recordings allow an implementation in 32-bit floats.
pub(crate) const TOLERANCE: f32 = 1e-3;

/// What was recorded for one prompt.
pub(crate) struct Recorded {
    pub(crate) tokens: Vec<u32>,
    /// Of every position.
    pub(crate) logits: Vec<Vec<f32>>,
    pub(crate) greedy: Vec<u32>,
    /// Runs of rows of media, each with the position of its first.
    pub(crate) media: Vec<(usize, Vec<f32>)>,
}

/// The recordings' names.
pub(crate) const TEXTS: [&str; 5] = ["prompt0", "prompt1", "prompt2", "prompt3", "prompt4"];

/// Reads what was recorded; a medium's rows replace the tokens with this id.
pub(crate) fn recorded(name: &str, placeholder: Option<u32>) -> Recorded {
    let bytes = fs::read(folder("muse-spark-tiny").join("golden.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let integers = |what: &str| -> Vec<u32> {
        let tensor = tensors.tensor(&format!("{name}.{what}")).unwrap();
        let values = tensor.data().chunks_exact(4);
        values
            .map(|value| u32::from_le_bytes(value.try_into().unwrap()))
            .collect()
    };
    Recorded {
        tokens: integers("ids"),
        logits: rows(&tensors, &format!("{name}.logits")),
        greedy: integers("greedy32"),
        media: placeholder.map_or(Vec::new(), |placeholder| {
            runs(&integers("ids"), placeholder, rows(&tensors, &format!("{name}.embeds")))
        }),
    }
}

/// Gives each run of placeholders its rows.
fn runs(ids: &[u32], placeholder: u32, rows: Vec<Vec<f32>>) -> Vec<(usize, Vec<f32>)> {
    let mut runs: Vec<(usize, Vec<f32>)> = Vec::new();
    let places = ids.iter().enumerate().filter(|(_, id)| **id == placeholder);
    let mut before = None;
    for ((position, _), row) in places.zip(rows) {
        match runs.last_mut() {
            Some(run) if before == position.checked_sub(1) => run.1.extend(row),
            _ => runs.push((position, row)),
        }
        before = Some(position);
    }
    runs
}

/// Runs a recorded prompt in pieces and continues it greedily; gives all logits of the prompt.
pub(crate) fn assert_matches(sequences: &mut Sequences, recorded: &Recorded, pieces: &[usize], what: &str) {
    sequences.media.insert(0, recorded.media.clone());
    let computed = sequences.run(0, &recorded.tokens, pieces);
    for (position, (computed, expected)) in computed.iter().zip(&recorded.logits).enumerate() {
        let difference = largest_difference(computed, expected);
        assert!(difference < TOLERANCE, "{what}, position {position}: {difference}");
    }
    let mut row = computed.last().unwrap().clone();
    for (step, expected) in recorded.greedy.iter().enumerate() {
        assert_eq!(arg_max(&row), *expected, "{what}, step {step}");
        row = sequences.append(0, recorded.tokens.len() + step, *expected);
    }
}

#[rstest]
fn texts_match(#[values(1000, 1, 16, 5)] piece: usize) {
    let loaded = load("muse-spark-tiny", exact());
    for name in TEXTS {
        let mut sequences = Sequences::new(loaded.model().unwrap(), 1);
        assert_matches(&mut sequences, &recorded(name, None), &[piece], name);
    }
}

#[rstest]
#[case("image", 1409)]
#[case("video", 1413)]
#[case("audio", 1414)]
fn media_match(#[case] name: &str, #[case] placeholder: u32) {
    let loaded = load("muse-spark-tiny", exact());
    for piece in [1000, 1, 7] {
        let mut sequences = Sequences::new(loaded.model().unwrap(), 1);
        assert_matches(&mut sequences, &recorded(name, Some(placeholder)), &[piece], name);
    }
}

/// One request to muse-nano with its recorded answer.
#[derive(Deserialize)]
struct Case {
    name: String,
    prompt_ids: Vec<u32>,
    output_ids: Vec<u32>,
    /// Of its pictures.
    image_grids: Option<serde_json::Value>,
    /// How far the second best token is behind at the closest step.
    min_margin: f32,
}

#[derive(Deserialize)]
struct Cases {
    cases: Vec<Case>,
}

/// The model of the demonstration answers as recorded, as it is served too, divided as it is declared.
#[rstest]
#[case(exact())]
#[case(Options::new(1))]
#[case(Options { ranks: Ranks { tensor: 4, expert: 4, sequence: 4 }, ..Options::new(1) })]
fn muse_nano_answers_as_recorded(#[case] options: Options) {
    let texts = nano_texts();
    assert_eq!(texts.len(), 51);
    assert_nano_answers(options, &texts);
}

/// Keys and values in eight bits change logits, but no answer that is sure.
#[rstest]
fn muse_nano_answers_surely_with_a_cache_of_eight_bits(
    #[values(Ranks::ONE, Ranks { tensor: 2, expert: 2, sequence: 1 })] ranks: Ranks,
) {
    let mut sure = nano_texts();
    sure.retain(|case| case.min_margin > 1.0);
    assert_eq!(sure.len(), 45);
    let options = Options {
        ranks,
        kv_dtype: KvDType::Fp8,
        ..Options::new(1)
    };
    assert_nano_answers(options, &sure);
}

fn nano() -> PathBuf {
    let nano = [
        env!("CARGO_MANIFEST_DIR"),
        "..",
        "..",
        "topologies",
        "models",
        "muse-nano",
    ];
    nano.iter().collect()
}

/// The recorded requests without pictures.
fn nano_texts() -> Vec<Case> {
    let cases: Cases = serde_json::from_slice(&fs::read(nano().join("expected.json")).unwrap()).unwrap();
    let texts = cases.cases.into_iter().filter(|case| case.image_grids.is_none());
    texts.collect()
}

fn assert_nano_answers(options: Options, cases: &[Case]) {
    let mut sequences = Sequences::new(open(&nano(), options).unwrap().model().unwrap(), 1);
    for case in cases {
        let mut row = sequences.run(0, &case.prompt_ids, &[100]).pop().unwrap();
        for (step, expected) in case.output_ids.iter().enumerate() {
            assert_eq!(arg_max(&row), *expected, "{}, step {step}", case.name);
            row = sequences.append(0, case.prompt_ids.len() + step, *expected);
        }
    }
}

/// Two files with an index, a tensor for every expert, and tensors that are nobody's business.
#[test]
fn experts_by_name_and_several_files_are_the_same_model() {
    let original = folder("muse-spark-tiny");
    let bytes = fs::read(original.join("model.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let mut split: Vec<(String, TensorView<'_>)> = Vec::new();
    for (name, tensor) in tensors.tensors() {
        match name.split_once(".experts.") {
            Some((prefix, kind @ ("gate_up_proj" | "down_proj"))) => {
                let kinds: &[&str] = if kind == "down_proj" {
                    &["down"]
                } else {
                    &["gate", "up"]
                };
                let (count, rows) = (tensor.shape()[0], tensor.shape()[1] / kinds.len());
                let parts = tensor.data().chunks_exact(tensor.data().len() / count / kinds.len());
                for (index, part) in parts.enumerate() {
                    let (expert, kind) = (index / kinds.len(), kinds[index % kinds.len()]);
                    let shape = vec![rows, tensor.shape()[2]];
                    let view = TensorView::new(Dtype::F32, shape, part).unwrap();
                    split.push((format!("{prefix}.experts.{expert}.{kind}_proj.weight"), view));
                }
            }
            _ => split.push((name, tensor)),
        }
    }
    let spare = TensorView::new(Dtype::F32, vec![1], &[0; 4]).unwrap();
    for name in [
        "self_attn.rotary_emb.inv_freq",
        "self_attn.k_scale",
        "mlp.experts.3.up_proj.input_scale",
    ] {
        split.push((format!("model.language_model.layers.1.{name}"), spare.clone()));
    }

    let copy = tempfile::tempdir().unwrap();
    fs::copy(original.join("config.json"), copy.path().join("config.json")).unwrap();
    let mut index = serde_json::Map::new();
    for (part, half) in split.chunks(split.len().div_ceil(2)).enumerate() {
        let file = format!("model-0000{}-of-00002.safetensors", part + 1);
        index.extend(half.iter().map(|(name, _)| (name.clone(), file.clone().into())));
        safetensors::serialize_to_file(half.iter().cloned(), None, &copy.path().join(file)).unwrap();
    }
    let index = serde_json::json!({ "weight_map": index });
    fs::write(copy.path().join("model.safetensors.index.json"), index.to_string()).unwrap();

    let prompt = recorded("prompt1", None);
    let run = |ranks| {
        let model = open(copy.path(), exact()).unwrap().factory(ranks, 1)().unwrap();
        assert_matches(&mut Sequences::new(model, 1), &prompt, &[1000], "prompt1");
    };
    run(Ranks::ONE);
    run(Ranks {
        tensor: 3,
        expert: 3,
        sequence: 1,
    });
}

#[test]
fn rows_of_media_beside_their_slice_fail_alone() {
    let mut sequences = Sequences::new(load("muse-spark-tiny", exact()).model().unwrap(), 1);
    let part = Part {
        seq: 0,
        start: 4,
        tokens: &[1, 2],
        wanted: Wanted::Last,
    };
    let rows = [0.0; 256];
    let refusal = |sequences: &mut Sequences, first, rows| {
        let embedded = [Embedded { first, rows }];
        let row = sequences.step_with(&part, &embedded);
        sequences.model.forget(SeqId(0));
        row.err()
    };
    assert_eq!(refusal(&mut sequences, 4, &rows[..]), None);
    assert_eq!(
        refusal(&mut sequences, 5, &rows[..]).unwrap(),
        "256 numbers of embeddings from position 5 are not rows of 128 within positions 4 to 6"
    );
    assert_eq!(
        refusal(&mut sequences, 4, &rows[1..]).unwrap(),
        "255 numbers of embeddings from position 4 are not rows of 128 within positions 4 to 6"
    );
}
