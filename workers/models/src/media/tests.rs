//! The tiny Muse Spark checkpoint's towers against the tensors that the published implementation recorded, stage by stage.

use std::path::PathBuf;

use ::safetensors::SafeTensors;
use cluster_engine::{Decoded, MediaEncoder};

use super::{
    patches::{Frames, Patches, Preparation},
    vision::Vision,
    *,
};

/// Relative to the largest number of a tensor.
const TOLERANCE: f32 = 1e-4;

fn folder() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests/fixtures/muse-spark-tiny"]
        .iter()
        .collect()
}

/// The recorded tensors.
struct Recorded(Vec<u8>);

impl Recorded {
    fn read() -> Self {
        Self(std::fs::read(folder().join("golden.safetensors")).unwrap())
    }

    fn bytes(&self, name: &str) -> (Vec<usize>, Vec<u8>) {
        let tensors = SafeTensors::deserialize(&self.0).unwrap();
        let tensor = tensors.tensor(name).unwrap();
        (tensor.shape().to_vec(), tensor.data().to_vec())
    }

    fn floats(&self, name: &str) -> Vec<f32> {
        let (_, bytes) = self.bytes(name);
        bytes
            .as_chunks::<4>()
            .0
            .iter()
            .map(|bytes| f32::from_le_bytes(*bytes))
            .collect()
    }

    /// The frames `[…, height, width, 3]` of a picture or a video.
    fn frames(&self, name: &str) -> (usize, usize, Vec<Vec<u8>>) {
        let (shape, bytes) = self.bytes(name);
        let [height, width] = [shape[shape.len() - 3], shape[shape.len() - 2]];
        (
            height,
            width,
            bytes.chunks_exact(height * width * 3).map(<[u8]>::to_vec).collect(),
        )
    }
}

fn model(ranks: usize) -> MediaModel {
    open(&folder(), MediaOptions { threads: 1, ranks }).unwrap().unwrap()
}

fn cpu() -> Cpu {
    Cpu::new(CpuOptions { threads: 2, isa: None }).unwrap()
}

fn close(what: &str, computed: &[f32], expected: &[f32]) {
    assert_eq!(computed.len(), expected.len(), "{what}");
    let largest = expected.iter().fold(0.0f32, |largest, x| largest.max(x.abs()));
    let difference = computed
        .iter()
        .zip(expected)
        .fold(0.0f32, |most, (a, b)| most.max((a - b).abs()));
    assert!(difference <= TOLERANCE * largest, "{what}: {difference} of {largest}");
}

fn patches(model: &MediaModel, recorded: &Recorded, names: &[&str]) -> Patches {
    let spec = &model.shared.rules.spec;
    let preparation = Preparation::new(spec.vision.as_ref().unwrap(), &spec.pictures);
    let mut patches = Patches::default();
    for name in names {
        let (height, width, frames) = recorded.frames(&format!("{name}.rgb"));
        let rgb: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
        let frames = Frames {
            height,
            width,
            rgb: &rgb,
        };
        preparation.add(frames, &mut patches);
    }
    patches
}

#[test]
fn pictures_are_resized_and_cut_exactly() {
    let (model, recorded) = (model(1), Recorded::read());
    let spec = &model.shared.rules.spec;
    let preparation = Preparation::new(spec.vision.as_ref().unwrap(), &spec.pictures);
    for name in ["image", "image2"] {
        let (height, width, frames) = recorded.frames(&format!("{name}.rgb"));
        let frames = Frames {
            height,
            width,
            rgb: &[&frames[0]],
        };
        let resized = preparation.size(&frames, frames.rgb[0]);
        let (shape, bytes) = recorded.bytes(&format!("{name}.resized"));
        assert_eq!([resized.height, resized.width, 3], *shape);
        assert_eq!(resized.rgb, bytes, "{name}");
    }
    for name in ["image", "image2", "video"] {
        let computed = patches(&model, &recorded, &[name]);
        assert_eq!(computed.numbers, recorded.floats(&format!("{name}.patches")), "{name}");
    }
}

#[test]
fn every_stage_of_the_vision_tower_matches() {
    let (model, recorded, cpu) = (model(1), Recorded::read(), cpu());
    let tower = model.shared.vision.as_ref().unwrap();
    let vision = Vision {
        frame: Arc::clone(&tower.frame),
        layers: Arc::clone(&tower.layers[0]),
        others: None,
    };
    for (name, pictures) in [
        ("image", vec!["image"]),
        ("video", vec!["video"]),
        ("images_packed", vec!["image", "image2"]),
    ] {
        let patches = patches(&model, &recorded, &pictures);
        let embedded = vision.embed(&cpu, &patches);
        if pictures.len() == 1 {
            close(
                "patch_embed",
                &embedded,
                &recorded.floats(&format!("{name}.patch_embed")),
            );
        }
        let merged = vision.tower(&cpu, embedded, &patches.grids).unwrap();
        close("tower", &merged, &recorded.floats(&format!("{name}.tower")));
        close(
            "embeds",
            &vision.adapt(&cpu, &merged),
            &recorded.floats(&format!("{name}.embeds")),
        );
    }
}

#[test]
fn the_audio_tower_matches() {
    let (model, recorded, cpu) = (model(1), Recorded::read(), cpu());
    let audio = model.shared.audio.as_ref().unwrap();
    let wave = recorded.floats("audio.wave");
    close("tower", &audio.tower(&cpu, &wave), &recorded.floats("audio.tower"));
    close("embeds", &audio.run(&cpu, &wave), &recorded.floats("audio.embeds"));
    assert_eq!(model.rules().audio_tokens(wave.len() as u64).unwrap(), 6);
}

/// Through the door that the engine uses, for several ranks, more than there are heads among them.
#[test]
fn ranks_agree_with_one_and_a_batch_with_its_parts() {
    let recorded = Recorded::read();
    let wave = recorded.floats("audio.wave");
    let pictures = ["image", "image2"].map(|name| recorded.frames(&format!("{name}.rgb")));
    let picture = |index: usize| {
        let (height, width, frames) = &pictures[index];
        Decoded::Image {
            width: *width as u32,
            height: *height as u32,
            rgb: &frames[0],
        }
    };
    let (height, width, video) = recorded.frames("video.rgb");
    let video: Vec<&[u8]> = video.iter().map(Vec::as_slice).collect();
    for ranks in [1, 2, 3, 4, 6] {
        let model = model(ranks);
        let mut encoder = model.encoder().unwrap();
        let sound = Decoded::Audio { samples: &wave };
        let batch = encoder.encode(&[sound, picture(0), picture(1), sound]).unwrap();
        close("first picture", &batch[1], &recorded.floats("image.embeds"));
        close("sound", &batch[0], &recorded.floats("audio.embeds"));
        assert_eq!(batch[0], batch[3]);
        let both: Vec<f32> = batch[1..3].iter().flat_map(|rows| rows.iter().copied()).collect();
        close("both pictures", &both, &recorded.floats("images_packed.embeds"));
        for (index, together) in [(0, &batch[1]), (1, &batch[2])] {
            assert_eq!(
                encoder.encode(&[picture(index)]).unwrap()[0],
                *together,
                "the same bits alone"
            );
        }
        let rows = encoder.encode_frames(width as u32, height as u32, &video).unwrap();
        close("video", &rows, &recorded.floats("video.embeds"));
        let tokens = model
            .video_tokens(width as u32, height as u32, video.len() as u32)
            .unwrap();
        assert_eq!(rows.len(), tokens as usize * 128);
    }
}
