//! Checkpoints that nobody has seen: random ones of many shapes, against references that read as the description of the
//! model does.

mod audio;
mod checkpoint;
mod generate;
mod text;
mod vision;
mod ways;

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
use ways::Way;

/// Logits spread by four.
const LOGIT_TOLERANCE: f64 = 1e-3;
/// Of rows of media, relative to their largest number.
const ROW_TOLERANCE: f64 = 1e-4;

/// The words of a whole model around those of its language model.
fn whole(text: Map<String, Value>) -> Value {
    json!({ "architectures": ["MuseSparkForConditionalGeneration"], "model_type": "muse_spark", "text_config": text })
}

#[rstest]
#[case(ways::plain(ways::base()))]
#[case(ways::small_heads_and_a_window_of_one())]
#[case(ways::wide_heads_all_global())]
#[case(ways::odd_widths_and_many_experts())]
#[case(ways::a_single_expert_and_other_constants())]
#[case(ways::dense_and_alone())]
#[case(ways::as_published())]
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
    let words = whole(generate::text_words(&ways::base()));
    generate::text(&ways::base(), words, Dtype::F32, 3).write(folder.path(), 1);
    assert!(no_media(folder.path()));
}

fn no_media(folder: &Path) -> bool {
    open_media(folder, MediaOptions { threads: 1, ranks: 1 })
        .unwrap()
        .is_none()
}
