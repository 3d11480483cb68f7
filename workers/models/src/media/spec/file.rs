//! Reading the description from a checkpoint's files: `vision_config` and `audio_config` of config.json, and
//! processor_config.json, which says how pictures and sounds are prepared. Missing values are those of the published model.

use std::path::Path;

use serde::Deserialize;

use super::{AudioSpec, MediaSpec, PictureSpec, Reach, StageSpec, VisionSpec};
use crate::{OpenError, SpecError, media::resize::Filter, spec::Family};

#[derive(Deserialize)]
struct Config {
    model_type: Option<String>,
    vision_config: Option<Vision>,
    audio_config: Option<Audio>,
    text_config: Option<Text>,
    /// The language model's words, where they have no table of their own.
    hidden_size: Option<usize>,
    rms_norm_eps: Option<f32>,
    projector_hidden_size: Option<usize>,
    projector_hidden_act: Option<String>,
}

/// Of the published language model's norms.
const TEXT_EPSILON: f32 = 1e-5;

#[derive(Clone, Copy, Deserialize)]
struct Text {
    hidden_size: usize,
    rms_norm_eps: Option<f32>,
}

#[derive(Deserialize)]
#[serde(default)]
struct Vision {
    model_type: String,
    hidden_size: usize,
    intermediate_size: usize,
    num_attention_heads: usize,
    num_hidden_layers: usize,
    layer_types: Option<Vec<String>>,
    patch_size: usize,
    patch_temporal: usize,
    merge_size: usize,
    pos_emb_height: usize,
    pos_emb_width: usize,
    layer_norm_eps: f32,
    hidden_act: String,
    rope_parameters: Rope,
}

#[derive(Deserialize)]
#[serde(default)]
struct Rope {
    rope_theta: f32,
}

#[derive(Deserialize)]
#[serde(default)]
struct Audio {
    hidden_sizes: Vec<usize>,
    depths: Vec<usize>,
    patch_sizes: Vec<usize>,
    mlp_ratio: f64,
    conv_kernel_size: usize,
    rms_norm_eps: f32,
    hidden_act: String,
}

#[derive(Deserialize, Default)]
struct Processor {
    #[serde(default)]
    image_processor: ImageProcessor,
    #[serde(default)]
    video_processor: VideoProcessor,
    #[serde(default)]
    feature_extractor: FeatureExtractor,
}

#[derive(Deserialize)]
#[serde(default)]
struct ImageProcessor {
    image_mean: [f32; 3],
    image_std: [f32; 3],
    max_image_tokens: u32,
    resample: u32,
}

#[derive(Deserialize)]
#[serde(default)]
struct VideoProcessor {
    max_video_frame_tokens: u32,
}

#[derive(Deserialize)]
#[serde(default)]
struct FeatureExtractor {
    sampling_rate: u32,
}

impl Default for Vision {
    fn default() -> Self {
        Self {
            model_type: String::new(),
            hidden_size: 1536,
            intermediate_size: 8960,
            num_attention_heads: 16,
            num_hidden_layers: 50,
            layer_types: None,
            patch_size: 14,
            patch_temporal: 2,
            merge_size: 2,
            pos_emb_height: 32,
            pos_emb_width: 32,
            layer_norm_eps: 1e-5,
            hidden_act: "gelu".into(),
            rope_parameters: Rope::default(),
        }
    }
}

impl Default for Rope {
    fn default() -> Self {
        Self { rope_theta: 10_000.0 }
    }
}

impl Default for Audio {
    fn default() -> Self {
        Self {
            hidden_sizes: vec![256, 512, 1024, 2048],
            depths: vec![2; 4],
            patch_sizes: vec![16, 6, 5, 4],
            mlp_ratio: 4.0,
            conv_kernel_size: 7,
            rms_norm_eps: 1e-6,
            hidden_act: "gelu".into(),
        }
    }
}

impl Default for ImageProcessor {
    fn default() -> Self {
        Self {
            image_mean: [0.5; 3],
            image_std: [0.5; 3],
            max_image_tokens: 4096,
            resample: 1,
        }
    }
}

impl Default for VideoProcessor {
    fn default() -> Self {
        Self {
            max_video_frame_tokens: 144,
        }
    }
}

impl Default for FeatureExtractor {
    fn default() -> Self {
        Self { sampling_rate: 24_000 }
    }
}

/// Reads the description in a checkpoint's folder. None: it has no towers that are known here.
pub(crate) fn read(folder: &Path) -> Result<Option<MediaSpec>, OpenError> {
    let config_path = folder.join("config.json");
    let Some(config) = read_json::<Config>(&config_path)? else {
        return Err(OpenError::Unknown(folder.into()));
    };
    let (vision, audio) = (config.vision(), config.audio());
    if vision.is_none() && audio.is_none() {
        return Ok(None);
    }
    let processor_path = folder.join("processor_config.json");
    let processor = read_json::<Processor>(&processor_path)?.unwrap_or_default();
    let wrong = |path: &Path, source| OpenError::Spec {
        path: path.into(),
        source,
    };
    let pictures = processor.pictures();
    let pictures = pictures.map_err(|source| wrong(&processor_path, source))?;
    let spec = || {
        let text = config.text()?;
        Ok(MediaSpec {
            pictures,
            vision: vision.map(Vision::spec).transpose()?,
            audio: audio.map(|audio| audio.spec(&processor)).transpose()?,
            adapter: config.adapter()?,
            width: text.hidden_size,
            epsilon: text.rms_norm_eps.unwrap_or(TEXT_EPSILON),
        })
    };
    spec().map(Some).map_err(|source| wrong(&config_path, source))
}

/// None: there is no such file.
fn read_json<T: for<'a> Deserialize<'a>>(path: &Path) -> Result<Option<T>, OpenError> {
    if !path.exists() {
        return Ok(None);
    }
    let bytes = std::fs::read(path).map_err(|source| OpenError::io(path, source))?;
    let value = serde_json::from_slice(&bytes).map_err(|source| OpenError::Spec {
        path: path.into(),
        source: SpecError::Json(source.to_string()),
    })?;
    Ok(Some(value))
}

impl Config {
    fn is_muse(&self) -> bool {
        self.model_type.as_deref() == Some(Family::MuseSpark.name())
    }

    /// The description of a vision tower that is known here: it says so itself, or the whole model does.
    fn vision(&self) -> Option<&Vision> {
        let is_known = |vision: &&Vision| match &*vision.model_type {
            "" => self.is_muse(),
            name => matches!(name, "muse_spark_vision" | "muse_glimmer_vision"),
        };
        self.vision_config.as_ref().filter(is_known)
    }

    /// The description of an audio tower that is known here.
    fn audio(&self) -> Option<&Audio> {
        let known = self.is_muse() || self.vision().is_some();
        self.audio_config.as_ref().filter(|_| known)
    }

    /// What the language model is.
    fn text(&self) -> Result<Text, SpecError> {
        match (self.text_config, self.hidden_size) {
            (Some(text), _) => Ok(text),
            (None, Some(hidden_size)) => Ok(Text {
                hidden_size,
                rms_norm_eps: self.rms_norm_eps,
            }),
            (None, None) => Err(SpecError::Missing("text_config".into())),
        }
    }

    fn adapter(&self) -> Result<usize, SpecError> {
        check_activation(
            "projector_hidden_act",
            self.projector_hidden_act.as_deref().unwrap_or("gelu"),
        )?;
        at_least_one("projector_hidden_size", self.projector_hidden_size.unwrap_or(4096))
    }
}

impl Vision {
    fn spec(&self) -> Result<VisionSpec, SpecError> {
        check_activation("vision_config.hidden_act", &self.hidden_act)?;
        let positive = [
            ("vision_config.hidden_size", self.hidden_size),
            ("vision_config.intermediate_size", self.intermediate_size),
            ("vision_config.num_attention_heads", self.num_attention_heads),
            ("vision_config.patch_size", self.patch_size),
            ("vision_config.patch_temporal", self.patch_temporal),
            ("vision_config.merge_size", self.merge_size),
            ("vision_config.pos_emb_height", self.pos_emb_height),
            ("vision_config.pos_emb_width", self.pos_emb_width),
        ];
        for (key, value) in positive {
            at_least_one(key, value)?;
        }
        if !self.hidden_size.is_multiple_of(4 * self.num_attention_heads) {
            return Err(SpecError::Invalid {
                key: "vision_config.hidden_size".into(),
                value: self.hidden_size.to_string(),
                rule: format!("{} heads need a multiple of four each", self.num_attention_heads),
            });
        }
        Ok(VisionSpec {
            width: self.hidden_size,
            inner: self.intermediate_size,
            heads: self.num_attention_heads,
            layers: self.reaches()?,
            patch: self.patch_size,
            frames: self.patch_temporal,
            merge: self.merge_size,
            table: [self.pos_emb_height, self.pos_emb_width],
            epsilon: self.layer_norm_eps,
            theta: self.rope_parameters.rope_theta,
        })
    }

    fn reaches(&self) -> Result<Vec<Reach>, SpecError> {
        let count = self.num_hidden_layers;
        let Some(types) = &self.layer_types else {
            let reach = |layer: usize| {
                if layer % 4 == 3 || layer + 1 == count {
                    Reach::Full
                } else {
                    Reach::Window
                }
            };
            return Ok((0..count).map(reach).collect());
        };
        if types.len() != count {
            return Err(SpecError::Invalid {
                key: "vision_config.layer_types".into(),
                value: format!("a list of {}", types.len()),
                rule: format!("there are {count} layers"),
            });
        }
        let reach = |name: &String| match &**name {
            "window_attention" => Ok(Reach::Window),
            "full_attention" => Ok(Reach::Full),
            other => Err(SpecError::Unsupported {
                key: "vision_config.layer_types".into(),
                value: format!("'{other}'"),
                instead: "supported are window_attention and full_attention",
            }),
        };
        types.iter().map(reach).collect()
    }
}

impl Audio {
    fn spec(&self, processor: &Processor) -> Result<AudioSpec, SpecError> {
        check_activation("audio_config.hidden_act", &self.hidden_act)?;
        let count = self.hidden_sizes.len();
        if count == 0 || self.depths.len() != count || self.patch_sizes.len() != count {
            return Err(SpecError::Invalid {
                key: "audio_config.hidden_sizes".into(),
                value: format!("a list of {count}"),
                rule: "hidden_sizes, depths and patch_sizes have an entry for each stage".into(),
            });
        }
        let mut stages = Vec::new();
        for ((width, blocks), patch) in self.hidden_sizes.iter().zip(&self.depths).zip(&self.patch_sizes) {
            stages.push(StageSpec {
                patch: at_least_one("audio_config.patch_sizes", *patch)?,
                width: at_least_one("audio_config.hidden_sizes", *width)?,
                inner: at_least_one("audio_config.mlp_ratio", (*width as f64 * self.mlp_ratio) as usize)?,
                blocks: *blocks,
            });
        }
        Ok(AudioSpec {
            stages,
            taps: at_least_one("audio_config.conv_kernel_size", self.conv_kernel_size)?,
            epsilon: self.rms_norm_eps,
            sample_rate: processor.feature_extractor.sampling_rate,
        })
    }
}

impl Processor {
    fn pictures(&self) -> Result<PictureSpec, SpecError> {
        let image = &self.image_processor;
        let filter = match image.resample {
            1 => Filter::Lanczos,
            2 => Filter::Triangle,
            3 => Filter::Cubic,
            other => {
                return Err(SpecError::Unsupported {
                    key: "image_processor.resample".into(),
                    value: other.to_string(),
                    instead: "supported are 1 (Lanczos), 2 (bilinear) and 3 (bicubic)",
                });
            }
        };
        at_least_one("image_processor.max_image_tokens", image.max_image_tokens as usize)?;
        Ok(PictureSpec {
            filter,
            mean: image.image_mean,
            deviation: image.image_std,
            image_tokens_max: image.max_image_tokens,
            frame_tokens_max: self.video_processor.max_video_frame_tokens.max(1),
        })
    }
}

fn at_least_one(key: &str, value: usize) -> Result<usize, SpecError> {
    if value == 0 {
        return Err(SpecError::Invalid {
            key: key.into(),
            value: "0".into(),
            rule: "at least 1 is needed".into(),
        });
    }
    Ok(value)
}

fn check_activation(key: &str, value: &str) -> Result<(), SpecError> {
    if value == "gelu" {
        return Ok(());
    }
    Err(SpecError::Unsupported {
        key: key.into(),
        value: format!("'{value}'"),
        instead: "supported is gelu",
    })
}
