//! Media models through their public door, and the pictures that muse-nano knows.

use std::{fs, path::PathBuf, sync::Arc};

use cluster_engine::{Decoded, MediaEncoder};
use cluster_models::{
    media::{MediaModel, MediaOptions, open, rules},
    open as open_text,
};
use rstest::rstest;
use serde::Deserialize;

use crate::{
    fixtures::{exact, folder},
    sequences::{Sequences, arg_max},
};

const PLACEHOLDER: u32 = 1649;

fn nano() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "../../topologies/models/muse-nano"]
        .iter()
        .collect()
}

fn towers(ranks: usize) -> MediaModel {
    open(&nano(), MediaOptions { threads: 1, ranks }).unwrap().unwrap()
}

/// A picture of the recorded requests.
struct Picture {
    width: u32,
    height: u32,
    rgb: Vec<u8>,
}

impl Picture {
    fn read(name: &str) -> Self {
        let file = std::io::BufReader::new(fs::File::open(nano().join(name)).unwrap());
        let mut reader = png::Decoder::new(file).read_info().unwrap();
        let mut rgb = vec![0; reader.output_buffer_size().unwrap()];
        let frame = reader.next_frame(&mut rgb).unwrap();
        assert_eq!(frame.color_type, png::ColorType::Rgb);
        rgb.truncate(frame.buffer_size());
        Self {
            width: frame.width,
            height: frame.height,
            rgb,
        }
    }

    fn decoded(&self) -> Decoded<'_> {
        Decoded::Image {
            width: self.width,
            height: self.height,
            rgb: &self.rgb,
        }
    }
}

#[derive(Deserialize)]
struct Case {
    name: String,
    messages: serde_json::Value,
    prompt_ids: Vec<u32>,
    output_ids: Vec<u32>,
    /// Clips, rows and columns of cells of each picture.
    #[serde(default)]
    image_grids: Vec<[u32; 3]>,
}

#[derive(Deserialize)]
struct Cases {
    cases: Vec<Case>,
}

impl Case {
    fn pictures(&self) -> Vec<Picture> {
        let messages = self.messages.as_array().unwrap().iter();
        let parts = messages.filter_map(|message| message["content"].as_array()).flatten();
        let names = parts.filter_map(|part| part["image_url"]["url"].as_str());
        names.map(Picture::read).collect()
    }

    /// Where the runs of placeholders begin.
    fn places(&self) -> Vec<usize> {
        let ids = &self.prompt_ids;
        let begins = |position: &usize| ids[*position] == PLACEHOLDER && ids[position - 1] != PLACEHOLDER;
        (1..ids.len()).filter(begins).collect()
    }
}

/// Every recorded request with pictures: as many rows as the prompt has places, and the recorded answer, token for token.
#[rstest]
fn muse_nano_sees_what_is_recorded(#[values(1, 2)] ranks: usize) {
    let towers = towers(ranks);
    let (rules, mut encoder) = (towers.rules(), towers.factory()().unwrap());
    let mut sequences = Sequences::new(open_text(&nano(), exact()).unwrap().model().unwrap(), 1);
    let cases: Cases = serde_json::from_slice(&fs::read(nano().join("expected.json")).unwrap()).unwrap();
    let cases = cases.cases.into_iter().filter(|case| !case.image_grids.is_empty());
    let mut seen = 0;
    for case in cases {
        let pictures = case.pictures();
        for (picture, [_, rows, columns]) in pictures.iter().zip(&case.image_grids) {
            let tokens = rules.image_tokens(picture.width, picture.height).unwrap();
            assert_eq!(tokens, rows * columns, "{}", case.name);
        }
        let media: Vec<Decoded<'_>> = pictures.iter().map(Picture::decoded).collect();
        let embedded = encoder.encode(&media).unwrap();
        let runs = case.places().into_iter().zip(embedded.iter().map(|rows| rows.to_vec()));
        sequences.media.insert(0, runs.collect());
        let mut row = sequences.run(0, &case.prompt_ids, &[100]).pop().unwrap();
        for (step, expected) in case.output_ids.iter().enumerate() {
            assert_eq!(arg_max(&row), *expected, "{}, step {step}", case.name);
            row = sequences.append(0, case.prompt_ids.len() + step, *expected);
        }
        seen += 1;
    }
    assert_eq!(seen, 13);
}

/// Sizes of all proportions give as many rows as the rules say.
#[test]
fn rows_are_as_many_as_the_rules_say() {
    let towers = towers(1);
    let (rules, mut encoder) = (towers.rules(), towers.encoder().unwrap());
    let width = rules.info().width as usize;
    for side in [1, 13, 28, 57, 100, 150, 311] {
        for other in [1, 20, 42, 70, 113, 290] {
            let rgb = vec![90; (side * other * 3) as usize];
            let picture = Decoded::Image {
                width: side,
                height: other,
                rgb: &rgb,
            };
            let tokens = rules.image_tokens(side, other).unwrap() as usize;
            let rows = encoder.encode(&[picture]).unwrap();
            assert_eq!(rows[0].len(), tokens * width, "{side} x {other}");
            assert!(rows[0].iter().all(|number| number.is_finite()));
        }
    }
    for samples in [1, 1919, 1920, 1921, 9000] {
        let silence = vec![0.01; samples];
        let rows = encoder.encode(&[Decoded::Audio { samples: &silence }]).unwrap();
        let tokens = rules.audio_tokens(samples as u64).unwrap() as usize;
        assert_eq!(rows[0].len(), tokens * width, "{samples} samples");
    }
}

#[test]
fn rules_can_be_had_without_weights_and_are_the_same() {
    let towers = towers(2);
    let alone = rules(&nano()).unwrap().unwrap();
    assert_eq!(alone.info(), towers.rules().info());
    assert_eq!(alone.info().width, 192);
    assert_eq!(alone.sample_rate(), Some(24_000));
    assert_eq!(alone.image_tokens(112, 112), Ok(16));
    let nothing = alone.image_tokens(0, 5).unwrap_err();
    assert_eq!(nothing, "a picture of 0 x 5 pixels has nothing to see");
    let silent = alone.audio_tokens(0).unwrap_err();
    assert_eq!(silent, "a sound without samples has nothing to hear");
}

#[test]
fn a_model_of_text_alone_has_no_media() {
    for name in ["llama-tiny", "llama-tiny-gguf/model.gguf"] {
        assert!(rules(&folder(name)).unwrap().is_none(), "{name}");
    }
}

#[test]
fn fingerprints_cover_weights_and_preparation() {
    let copy = tempfile::tempdir().unwrap();
    let original = folder("muse-spark-tiny");
    let put = |name: &str, bytes: &[u8]| fs::write(copy.path().join(name), bytes).unwrap();
    let fingerprint = || rules(copy.path()).unwrap().unwrap().info().fingerprint;
    for name in ["config.json", "processor_config.json", "model.safetensors"] {
        put(name, &fs::read(original.join(name)).unwrap());
    }
    let base = fingerprint();
    assert_eq!(base, rules(&original).unwrap().unwrap().info().fingerprint);

    let processor = fs::read_to_string(original.join("processor_config.json")).unwrap();
    put(
        "processor_config.json",
        processor
            .replace("\"max_image_tokens\": 16", "\"max_image_tokens\": 9")
            .as_bytes(),
    );
    assert_ne!(fingerprint(), base);
    put("processor_config.json", processor.as_bytes());

    let weights = fs::read(original.join("model.safetensors")).unwrap();
    let changed = |name: &str| {
        let tensors = safetensors::SafeTensors::deserialize(&weights).unwrap();
        let at = tensors.tensor(name).unwrap().data().as_ptr() as usize - weights.as_ptr() as usize;
        let mut changed = weights.clone();
        changed[at] ^= 1;
        changed
    };
    put(
        "model.safetensors",
        &changed("model.vision_tower.layers.2.attn.proj.weight"),
    );
    assert_ne!(fingerprint(), base);
    put("model.safetensors", &changed("lm_head.weight"));
    assert_eq!(fingerprint(), base, "the language model's weights do not count");
}

#[test]
fn what_cannot_be_is_refused() {
    let none = MediaOptions { threads: 1, ranks: 0 };
    assert_eq!(
        open(&nano(), none).unwrap_err().to_string(),
        "option ranks is 0: at least 1 is needed"
    );
    let short = Decoded::Image {
        width: 2,
        height: 2,
        rgb: &[0; 11],
    };
    let error = towers(1).encoder().unwrap().encode(&[short]).unwrap_err().to_string();
    assert_eq!(error, "a picture of 2 x 2 pixels has other bytes than its 12");
}

/// Instances share weights and can be had one after the other.
#[test]
fn a_factory_outlives_its_model() {
    let factory = towers(2).factory();
    let rgb = vec![7; 56 * 56 * 3];
    let picture = Decoded::Image {
        width: 56,
        height: 56,
        rgb: &rgb,
    };
    let encode = || -> Arc<[f32]> { factory().unwrap().encode(&[picture]).unwrap().remove(0) };
    assert_eq!(encode(), encode());
}
