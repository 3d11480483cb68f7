//! Checkpoints that nobody has seen: random ones of many shapes, against references that read as the description of the
//! model does.

mod audio;
mod checkpoint;
mod generate;
mod text;
mod vision;

use std::path::Path;

use cluster_engine::{Decoded, MediaEncoder};
use cluster_models::{
    Ranks,
    media::{MediaOptions, open as open_media},
    open,
};
use rstest::rstest;
use safetensors::Dtype;
use serde_json::{Map, Value, json};

use crate::{fixtures::exact, sequences::Sequences};
use checkpoint::Checkpoint;

/// Logits spread by four.
const LOGIT_TOLERANCE: f64 = 1e-3;
/// Of rows of media, relative to their largest number.
const ROW_TOLERANCE: f64 = 1e-4;

const LOCAL: bool = true;
const GLOBAL: bool = false;
const DENSE: bool = true;
const SPARSE: bool = false;
const THETA: f64 = 500_000.0;

fn base() -> text::Shape {
    text::Shape {
        prefix: "model.language_model.",
        vocabulary: 301,
        hidden: 96,
        heads: 4,
        kv_heads: 2,
        head_dim: 16,
        layers: vec![
            (LOCAL, DENSE, THETA),
            (GLOBAL, SPARSE, 0.0),
            (LOCAL, SPARSE, THETA),
            (GLOBAL, DENSE, 0.0),
        ],
        window: 5,
        dense_inner: 80,
        pooled: 40,
        inner: 24,
        experts: 6,
        chosen: 2,
        tied: false,
        eps: 1e-5,
        post_eps: 1e-8,
        qk_scale: 3.0,
        multiplier: (256.0f64 / 96.0).sqrt(),
        cap: Some(20.0),
        temperature: 0.3,
        routed_scale: 1.0,
    }
}

/// How a language model is written and asked.
struct Way {
    shape: text::Shape,
    dtype: Dtype,
    files: usize,
    /// Whether each expert has its own tensors.
    named: bool,
    /// Whether the language model's words stand at the top.
    flat: bool,
    /// Words that are left out.
    missing: &'static [&'static str],
    prompt: usize,
}

fn way(shape: text::Shape) -> Way {
    Way {
        shape,
        dtype: Dtype::F32,
        files: 1,
        named: false,
        flat: false,
        missing: &[],
        prompt: 40,
    }
}

fn small_heads_and_a_window_of_one() -> Way {
    let shape = text::Shape {
        heads: 8,
        kv_heads: 8,
        head_dim: 8,
        layers: vec![(LOCAL, SPARSE, 10_000.0); 3],
        window: 1,
        tied: true,
        ..base()
    };
    Way {
        dtype: Dtype::BF16,
        ..way(shape)
    }
}

fn wide_heads_all_global() -> Way {
    let shape = text::Shape {
        heads: 3,
        kv_heads: 1,
        head_dim: 64,
        layers: vec![(GLOBAL, SPARSE, 0.0); 3],
        vocabulary: 97,
        experts: 5,
        chosen: 1,
        ..base()
    };
    Way {
        dtype: Dtype::F16,
        files: 3,
        ..way(shape)
    }
}

fn odd_widths_and_many_experts() -> Way {
    let shape = text::Shape {
        hidden: 50,
        heads: 6,
        kv_heads: 3,
        head_dim: 24,
        layers: vec![(LOCAL, SPARSE, THETA), (LOCAL, SPARSE, 100.0), (GLOBAL, SPARSE, 0.0)],
        vocabulary: 131,
        window: 100,
        pooled: 33,
        inner: 17,
        experts: 16,
        chosen: 4,
        multiplier: 0.7,
        ..base()
    };
    Way {
        prompt: 120,
        ..way(shape)
    }
}

fn a_single_expert_and_other_constants() -> Way {
    let shape = text::Shape {
        heads: 5,
        kv_heads: 5,
        head_dim: 10,
        layers: vec![(GLOBAL, DENSE, THETA), (LOCAL, SPARSE, 0.0), (LOCAL, SPARSE, THETA)],
        window: 16,
        experts: 1,
        chosen: 1,
        eps: 1e-2,
        post_eps: 1e-3,
        cap: None,
        temperature: 1.0,
        routed_scale: 2.5,
        ..base()
    };
    Way {
        named: true,
        files: 2,
        dtype: Dtype::BF16,
        ..way(shape)
    }
}

/// The language model alone, as it is saved without its towers.
fn dense_and_alone() -> Way {
    let shape = text::Shape {
        prefix: "model.",
        heads: 12,
        kv_heads: 4,
        head_dim: 40,
        layers: vec![(LOCAL, DENSE, THETA), (GLOBAL, DENSE, 0.0), (LOCAL, DENSE, THETA)],
        window: 16,
        dense_inner: 37,
        cap: Some(50.0),
        ..base()
    };
    Way {
        flat: true,
        missing: &[
            "moe_hidden_size",
            "moe_intermediate_size",
            "num_local_experts",
            "num_experts_per_tok",
        ],
        ..way(shape)
    }
}

/// What can be left out is as in the published model. Its sharp attention makes much of small differences, so all is short.
fn as_published() -> Way {
    let hidden: usize = 128;
    let head_dim: usize = 64;
    let layer = |index: usize| match (5 - 1 - index) % 4 {
        0 => (GLOBAL, SPARSE, 0.0),
        _ => (LOCAL, SPARSE, THETA),
    };
    let shape = text::Shape {
        hidden,
        heads: 2,
        kv_heads: 1,
        head_dim,
        layers: (0..5).map(layer).collect(),
        window: 2048,
        qk_scale: 5.473_006_486_387_5 * 8.0 / (head_dim as f64).sqrt(),
        multiplier: (256.0 / hidden as f64).sqrt(),
        experts: 9,
        chosen: 8,
        ..base()
    };
    Way {
        missing: &[
            "head_dim",
            "max_position_embeddings",
            "rms_norm_eps",
            "post_norm_eps",
            "hidden_act",
            "tie_word_embeddings",
            "attention_bias",
            "qk_scale_factor",
            "output_multiplier",
            "final_logit_softcapping",
            "residual_gate_temperature",
            "layer_types",
            "layer_rope_theta",
            "rope_parameters",
            "sliding_window",
            "mlp_layer_types",
            "intermediate_size",
            "num_experts_per_tok",
            "routed_scaling_factor",
            "model_type",
        ],
        prompt: 24,
        ..way(shape)
    }
}

/// The words of a whole model around those of its language model.
fn whole(text: Map<String, Value>) -> Value {
    json!({ "architectures": ["MuseSparkForConditionalGeneration"], "model_type": "muse_spark", "text_config": text })
}

#[rstest]
#[case(way(base()))]
#[case(small_heads_and_a_window_of_one())]
#[case(wide_heads_all_global())]
#[case(odd_widths_and_many_experts())]
#[case(a_single_expert_and_other_constants())]
#[case(dense_and_alone())]
#[case(as_published())]
fn language_models_of_other_shapes(#[case] way: Way) {
    let Way { shape, dtype, .. } = &way;
    let mut words = generate::text_words(shape);
    words.retain(|word, _| !way.missing.contains(&word.as_str()));
    let words = if way.flat { Value::Object(words) } else { whole(words) };
    let mut model = generate::text(shape, words, *dtype, 7);

    let tokens: Vec<u32> = (0..way.prompt)
        .map(|_| (model.uniform() * shape.vocabulary as f64) as u32)
        .collect();
    let row =
        |model: &mut Checkpoint| -> Vec<f64> { (0..shape.hidden).map(|_| f64::from(model.uniform() as f32)).collect() };
    let media: Vec<(usize, Vec<f64>)> = (11..14).map(|position| (position, row(&mut model))).collect();
    let expected = text::logits(&model, shape, &tokens, &media);
    let numbers = expected.iter().flatten();
    let spread = (numbers.clone().map(|x| x * x).sum::<f64>() / numbers.count() as f64).sqrt();
    assert!((2.0..8.0).contains(&spread), "logits spread by {spread}");

    let folder = tempfile::tempdir().unwrap();
    if way.named {
        model.name_experts();
    }
    model.write(folder.path(), way.files);
    let loaded = open(folder.path(), exact()).unwrap();
    let rows = media.iter().flat_map(|(_, row)| row).map(|x| *x as f32).collect();
    for [tensor, expert, sequence] in [[1, 1, 1], [2, 1, 1], [2, 2, 1], [2, 2, 2], [3, 1, 1], [5, 5, 5]] {
        let ranks = Ranks {
            tensor,
            expert,
            sequence,
        };
        let mut sequences = Sequences::new(loaded.factory(ranks, 1)().unwrap(), 1);
        sequences.media.insert(0, vec![(media[0].0, Vec::clone(&rows))]);
        let computed = sequences.run(0, &tokens, &[17, 1, 22]);
        for (position, (computed, expected)) in computed.iter().zip(&expected).enumerate() {
            let difference = difference(computed, expected);
            assert!(
                difference < LOGIT_TOLERANCE,
                "{ranks:?}, position {position}: {difference}"
            );
        }
    }
}

fn difference(computed: &[f32], expected: &[f64]) -> f64 {
    assert_eq!(computed.len(), expected.len());
    let differences = computed.iter().zip(expected).map(|(a, b)| (f64::from(*a) - b).abs());
    differences.fold(0.0, |largest, x| if x > largest || x.is_nan() { x } else { largest })
}

const TEXT_WIDTH: usize = 36;
const TEXT_EPS: f64 = 1e-5;

/// The words around the towers.
fn around(vision: Option<Map<String, Value>>, audio: Option<Map<String, Value>>, text_eps: f64) -> Value {
    let mut words = whole(Map::from_iter([
        ("hidden_size".to_owned(), json!(TEXT_WIDTH)),
        ("rms_norm_eps".to_owned(), json!(text_eps)),
    ]));
    for (name, tower) in [("vision_config", vision), ("audio_config", audio)] {
        if let Some(tower) = tower {
            words[name] = Value::Object(tower);
        }
    }
    words
}

fn eyes() -> vision::Shape {
    vision::Shape {
        width: 40,
        inner: 56,
        heads: 2,
        full: vec![false, true, false],
        patch: 4,
        frames: 2,
        merge: 2,
        table: [4, 4],
        eps: 1e-5,
        theta: 10_000.0,
        adapter: 44,
        text_width: TEXT_WIDTH,
        text_eps: TEXT_EPS,
    }
}

fn coarse_cells_of_one_frame() -> vision::Shape {
    vision::Shape {
        width: 24,
        heads: 3,
        inner: 31,
        patch: 3,
        frames: 1,
        merge: 3,
        table: [5, 3],
        full: vec![false, false, false, true, false],
        eps: 1e-3,
        text_eps: 1e-2,
        ..eyes()
    }
}

fn narrow_heads_and_long_clips() -> vision::Shape {
    vision::Shape {
        width: 16,
        heads: 4,
        frames: 3,
        patch: 8,
        merge: 1,
        table: [2, 2],
        full: vec![false, false, false, true, false, true],
        theta: 100.0,
        ..eyes()
    }
}

/// Words that are missing are those of the published model.
#[rstest]
#[case(eyes(), Dtype::F32, &[])]
#[case(coarse_cells_of_one_frame(), Dtype::BF16, &[])]
#[case(
    narrow_heads_and_long_clips(),
    Dtype::F16,
    &["layer_types"]
)]
#[case(vision::Shape { merge: 4, frames: 4, heads: 5, ..eyes() }, Dtype::F32, &["layer_norm_eps", "hidden_act", "rope_parameters", "model_type"])]
fn vision_towers_of_other_shapes(#[case] shape: vision::Shape, #[case] dtype: Dtype, #[case] missing: &[&str]) {
    let mut words = generate::vision_words(&shape);
    words.retain(|word, _| !missing.contains(&word.as_str()));
    let mut words = around(Some(words), None, shape.text_eps);
    words["projector_hidden_size"] = json!(shape.adapter);
    let mut model = Checkpoint::new(words, 11);
    generate::vision(&mut model, &shape, dtype);
    let folder = tempfile::tempdir().unwrap();
    model.write(folder.path(), 2);

    let cell = shape.patch * shape.merge;
    let film = |model: &mut Checkpoint, [rows, columns]: [usize; 2], frames: usize| {
        let (height, width) = (rows * cell, columns * cell);
        let mut frame = || {
            (0..height * width * 3)
                .map(|_| (model.uniform() * 256.0) as u8)
                .collect()
        };
        let frames = (0..frames).map(|_| frame()).collect();
        vision::Film { height, width, frames }
    };
    let pictures = [[1, 1], [3, 5], [4, 2]].map(|cells| film(&mut model, cells, 1));
    let moving = film(&mut model, [2, 3], 5);
    for ranks in [1, 2, 3] {
        let towers = open_media(folder.path(), MediaOptions { threads: 1, ranks })
            .unwrap()
            .unwrap();
        assert_eq!(towers.rules().sample_rate(), None);
        let mut encoder = towers.encoder().unwrap();
        let decoded = pictures.each_ref().map(|picture| Decoded::Image {
            width: picture.width as u32,
            height: picture.height as u32,
            rgb: &picture.frames[0],
        });
        let encoded = encoder.encode(&decoded).unwrap();
        for (picture, rows) in pictures.iter().zip(&encoded) {
            assert_rows(
                rows,
                &vision::embeds(&model, &shape, picture),
                &format!("{ranks} ranks"),
            );
        }
        let frames: Vec<&[u8]> = moving.frames.iter().map(Vec::as_slice).collect();
        let rows = encoder
            .encode_frames(moving.width as u32, moving.height as u32, &frames)
            .unwrap();
        assert_rows(&rows, &vision::embeds(&model, &shape, &moving), "a film");
    }
}

fn assert_rows(rows: &[f32], expected: &[Vec<f64>], what: &str) {
    let expected = expected.concat();
    let largest = expected.iter().fold(0.0f64, |largest, x| largest.max(x.abs()));
    let difference = difference(rows, &expected);
    assert!(
        difference < largest * ROW_TOLERANCE,
        "{what}: {difference} of {largest}"
    );
}

fn ears() -> audio::Shape {
    audio::Shape {
        stages: vec![(4, 16, 1), (3, 24, 2)],
        ratio: 4.0,
        taps: 7,
        eps: 1e-6,
        text_eps: TEXT_EPS,
    }
}

#[rstest]
#[case(ears(), Dtype::F32, &["conv_kernel_size", "mlp_ratio", "rms_norm_eps", "hidden_act", "model_type"], true)]
#[case(audio::Shape { stages: vec![(7, 12, 0), (2, 20, 3), (1, 9, 1)], taps: 1, ratio: 1.5, ..ears() }, Dtype::BF16, &[], true)]
#[case(audio::Shape { stages: vec![(5, 8, 2)], taps: 9, eps: 1e-3, text_eps: 1e-2, ..ears() }, Dtype::F16, &[], false)]
fn audio_towers_of_other_shapes(
    #[case] shape: audio::Shape,
    #[case] dtype: Dtype,
    #[case] missing: &[&str],
    #[case] sees: bool,
) {
    let mut words = generate::audio_words(&shape);
    words.retain(|word, _| !missing.contains(&word.as_str()));
    let eyes = vision::Shape {
        text_eps: shape.text_eps,
        ..eyes()
    };
    let mut words = around(sees.then(|| generate::vision_words(&eyes)), Some(words), shape.text_eps);
    words["projector_hidden_size"] = json!(eyes.adapter);
    let mut model = Checkpoint::new(words, 13);
    generate::audio(&mut model, &shape, TEXT_WIDTH, dtype);
    if sees {
        generate::vision(&mut model, &eyes, dtype);
    }
    let folder = tempfile::tempdir().unwrap();
    model.write(folder.path(), 1);
    let towers = open_media(folder.path(), MediaOptions { threads: 1, ranks: 2 })
        .unwrap()
        .unwrap();
    assert_eq!(towers.rules().sample_rate(), Some(24_000));
    assert_eq!(towers.rules().image_tokens(8, 8).is_ok(), sees);
    let sounds: Vec<Vec<f32>> = [1, 28, 61, 60]
        .map(|len| (0..len).map(|_| model.uniform() as f32 - 0.5).collect())
        .into();
    let decoded: Vec<Decoded<'_>> = sounds.iter().map(|samples| Decoded::Audio { samples }).collect();
    let encoded = towers.encoder().unwrap().encode(&decoded).unwrap();
    for (samples, rows) in sounds.iter().zip(&encoded) {
        let expected = audio::embeds(&model, &shape, samples);
        assert_eq!(
            towers.rules().audio_tokens(samples.len() as u64),
            Ok(expected.len() as u32)
        );
        assert_rows(rows, &expected, &format!("{} samples", samples.len()));
    }
}

/// A language model alone has nothing that sees or hears.
#[test]
fn no_towers_are_no_media() {
    let folder = tempfile::tempdir().unwrap();
    let words = whole(generate::text_words(&base()));
    generate::text(&base(), words, Dtype::F32, 3).write(folder.path(), 1);
    assert!(no_media(folder.path()));
}

fn no_media(folder: &Path) -> bool {
    open_media(folder, MediaOptions { threads: 1, ranks: 1 })
        .unwrap()
        .is_none()
}
