//! Pictures and sounds to embeddings: the towers of a checkpoint behind the engine's `MediaEncoder` and `MediaRules`.
//!
//! ```text
//!  pixels ─▶ target size ─▶ resize ─▶ patches ─▶ vision tower ─▶ 2x2 merge ─▶ adapter ─┐
//!                                                                                      ├─▶ rows of the language model's width
//!  samples ───────────────────────────────────▶ audio tower ──────────────────────────┘
//! ```
//! It does not know files of pictures, nor who asked. The rows of a medium depend, to the last bit, on the medium alone as
//! long as the number of ranks stays; another number adds the same numbers in another order.
//!
//! Cost of a patch in muse-nano: about 1 MFLOP, of which a quarter is the patch embedding. Measured with `examples/encode.rs` on
//! one core of an EPYC (Zen 5) that others used too, best of 21: a picture of 112 x 112 (64 patches, 16 tokens) takes 1.03 ms, or
//! 16 µs a patch and 62 GFLOP/s; 56 x 56 takes 0.27 ms; 448 x 448, scaled down to 112 x 112, 2.6 ms. Two ranks: 1.30 and 0.34 ms;
//! pictures as small as these do not pay for the all-reduces.

mod audio;
mod encoder;
mod grid;
mod patches;
mod resize;
mod rules;
mod spec;
mod target;
mod tensors;
mod vision;

use std::{path::Path, sync::Arc};

use cluster_engine::{MediaEncoderFactory, MediaInfo, MediaRules};
use cluster_kernels::{Cpu, CpuOptions};
use cluster_messages::Fingerprint;

use crate::{OpenError, WeightsError, safetensors::SafetensorsFolder};
use audio::Audio;
use encoder::{Shared, Tower};
use rules::Rules;
use spec::MediaSpec;
use tensors::Tensors;
use vision::{Frame, Layers};

pub use encoder::Encoder;

/// What belongs to the towers; the rest of a checkpoint is the language model.
const PREFIXES: [&str; 4] = [
    "model.vision_tower.",
    "model.vision_adapter.",
    "model.vision_projection.",
    "model.audio_tower.",
];

/// How to run a media model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MediaOptions {
    /// Threads of a rank; as many repack the weights.
    pub threads: usize,
    /// Ranks that share the heads and the inner width of the vision tower.
    pub ranks: usize,
}

/// A media model whose weights are in memory.
pub struct MediaModel {
    shared: Arc<Shared>,
}

impl std::fmt::Debug for MediaModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MediaModel")
            .field("rules", &self.shared.rules)
            .field("ranks", &self.shared.ranks)
            .finish_non_exhaustive()
    }
}

impl MediaModel {
    /// How many rows a medium becomes.
    pub fn rules(&self) -> Arc<dyn MediaRules> {
        Arc::<Rules>::clone(&self.shared.rules)
    }

    /// Rows of a video of so many frames: those of a clip, for every two.
    pub fn video_tokens(&self, width: u32, height: u32, frames: u32) -> Result<u32, String> {
        let spec = &self.shared.rules.spec;
        let most = match frames {
            1 => spec.pictures.image_tokens_max,
            _ => spec.pictures.frame_tokens_max,
        };
        let frames_each = spec.vision.as_ref().map_or(1, |vision| vision.frames as u32);
        let clips = frames.div_ceil(frames_each);
        let tokens = self.shared.rules.clip_tokens(width, height, most)?;
        tokens
            .checked_mul(clips)
            .ok_or_else(|| format!("a video of {frames} frames is too long"))
    }

    /// Makes one instance.
    pub fn encoder(&self) -> Result<Encoder, cluster_engine::ModelError> {
        Encoder::new(&self.shared)
    }

    /// Makes instances on demand; holds the weights.
    pub fn factory(&self) -> MediaEncoderFactory {
        let shared = Arc::clone(&self.shared);
        Arc::new(move || Ok(Box::new(Encoder::new(&shared)?)))
    }
}

/// The rules of the checkpoint in a folder, without making its weights ready. None: it has no towers.
///
/// The fingerprint covers the towers' weights, so their bytes are read once.
pub fn rules(path: &Path) -> Result<Option<Arc<dyn MediaRules>>, OpenError> {
    let described = describe(path)?;
    Ok(described.map(|(rules, _)| Arc::new(rules) as Arc<dyn MediaRules>))
}

/// Opens the towers of the checkpoint in a folder. None: it has no towers.
pub fn open(path: &Path, options: MediaOptions) -> Result<Option<MediaModel>, OpenError> {
    for (field, value) in [("threads", options.threads), ("ranks", options.ranks)] {
        if value == 0 {
            return Err(OpenError::Options {
                field,
                got: "0".into(),
                rule: "at least 1 is needed".into(),
            });
        }
    }
    let Some((rules, files)) = describe(path)? else {
        return Ok(None);
    };
    let shared = load(rules, &files, options).map_err(|source| match source {
        Trouble::Weights(source) => OpenError::Weights {
            path: path.into(),
            source,
        },
        Trouble::Kernel(source) => OpenError::Kernel(source),
    })?;
    Ok(Some(MediaModel {
        shared: Arc::new(shared),
    }))
}

/// The rules and the files. None: there are no towers.
fn describe(path: &Path) -> Result<Option<(Rules, SafetensorsFolder)>, OpenError> {
    if path.is_file() {
        return Ok(None);
    }
    let Some(spec) = spec::read(path)? else {
        return Ok(None);
    };
    let files = SafetensorsFolder::open(path)?;
    let info = MediaInfo {
        fingerprint: fingerprint(&spec, &files),
        width: spec.width as u32,
    };
    Ok(Some((Rules { spec, info }, files)))
}

/// Covers all that the rows of a medium depend on.
fn fingerprint(spec: &MediaSpec, files: &SafetensorsFolder) -> Fingerprint {
    let is_tower = |name: &&str| PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    let mut names: Vec<&str> = files.names().filter(is_tower).collect();
    names.sort_unstable();
    let described = format!("{spec:?}");
    let tensors = names.iter().flat_map(|name| {
        let bytes = files.raw(name).map_or(&[][..], |tensor| tensor.bytes);
        [name.as_bytes(), bytes]
    });
    Fingerprint::of(std::iter::once(described.as_bytes()).chain(tensors))
}

/// Why weights cannot be made ready.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error(transparent)]
    Weights(#[from] WeightsError),
    #[error(transparent)]
    Kernel(#[from] cluster_kernels::KernelError),
}

fn load(rules: Rules, files: &SafetensorsFolder, options: MediaOptions) -> Result<Shared, Trouble> {
    let cpu = Cpu::new(CpuOptions {
        threads: options.threads,
        isa: None,
    })?;
    let tensors = Tensors { files, cpu: &cpu };
    let spec = &rules.spec;
    let vision = spec.vision.as_ref().map(|vision| {
        let part = |rank| Layers::load(&tensors, vision, rank, options.ranks).map(Arc::new);
        Ok::<_, WeightsError>(Tower {
            frame: Arc::new(Frame::load(&tensors, vision, spec)?),
            layers: (0..options.ranks).map(part).collect::<Result<_, _>>()?,
        })
    });
    let audio = spec.audio.as_ref().map(|audio| Audio::load(&tensors, audio, spec));
    Ok(Shared {
        ranks: options.ranks,
        vision: vision.transpose()?,
        audio: audio.transpose()?.map(Arc::new),
        threads: options.threads,
        rules: Arc::new(rules),
    })
}

#[cfg(test)]
mod tests;
