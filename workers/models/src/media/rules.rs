//! How many rows a medium becomes. No weights.

use cluster_engine::{MediaInfo, MediaRules};

use super::{spec::MediaSpec, target::cells};

/// Why a picture is refused where there is no vision tower.
pub(crate) const NO_PICTURES: &str = "this model takes no pictures";

/// A model's rules.
#[derive(Debug)]
pub(crate) struct Rules {
    pub(crate) spec: MediaSpec,
    pub(crate) info: MediaInfo,
}

/// How many times the limit a picture may have that cannot be scaled to fit.
const OVER_LIMIT_MAX: u32 = 4;

impl Rules {
    /// Tokens of one clip of a picture or a video of this size.
    pub(crate) fn clip_tokens(&self, width: u32, height: u32, tokens_max: u32) -> Result<u32, String> {
        if width == 0 || height == 0 {
            return Err(format!("a picture of {width} x {height} pixels has nothing to see"));
        }
        let vision = self.spec.vision.as_ref().ok_or(NO_PICTURES)?;
        let [rows, columns] = cells(height, width, vision.cell(), tokens_max);
        // The rule of the model passes the limit for the longest and thinnest; how far is bounded here.
        rows.checked_mul(columns)
            .filter(|tokens| *tokens <= tokens_max.saturating_mul(OVER_LIMIT_MAX))
            .ok_or_else(|| format!("a picture of {width} x {height} pixels is too long for its breadth"))
    }
}

impl MediaRules for Rules {
    fn info(&self) -> MediaInfo {
        self.info
    }

    fn image_tokens(&self, width: u32, height: u32) -> Result<u32, String> {
        self.clip_tokens(width, height, self.spec.pictures.image_tokens_max)
    }

    fn audio_tokens(&self, samples: u64) -> Result<u32, String> {
        let Some(audio) = &self.spec.audio else {
            return Err("this model takes no sounds".into());
        };
        if samples == 0 {
            return Err("a sound without samples has nothing to hear".into());
        }
        let tokens = samples.div_ceil(audio.samples_per_token() as u64);
        u32::try_from(tokens).map_err(|_| format!("a sound of {samples} samples is too long"))
    }

    fn sample_rate(&self) -> Option<u32> {
        self.spec.audio.as_ref().map(|audio| audio.sample_rate)
    }
}
