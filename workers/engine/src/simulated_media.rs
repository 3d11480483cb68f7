//! A media model without weights: a time model, and rows that are a function of every pixel or sample.

use std::sync::Arc;

use cluster_messages::Fingerprint;
use serde::{Deserialize, Serialize};

use crate::{Decoded, MediaEncoder, MediaInfo, MediaRules, ModelError};

/// What to simulate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SimulatedMediaConfig {
    /// Numbers of a row.
    pub width: u32,
    /// Pixels of a patch's side; every patch is a row.
    pub patch: u32,
    /// Samples of a row of sound.
    pub samples: u32,
    /// The most rows of one medium.
    pub rows_max: u32,
    /// Models with different seeds give different rows.
    pub seed: u64,
    /// What a batch costs.
    pub cost: MediaCost,
}

/// The time of a batch, as a sum of these parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MediaCost {
    /// Microseconds of any batch: reading the weights, launching.
    pub batch_us: u64,
    /// Nanoseconds per row: arithmetic.
    pub row_ns: u64,
}

/// Samples a second that the simulated model wants.
const SAMPLE_RATE: u32 = 16_000;

/// The model, and its rules.
#[derive(Clone, Debug)]
pub struct SimulatedMedia {
    config: SimulatedMediaConfig,
    last_cost_us: u64,
}

impl SimulatedMedia {
    /// A model that has encoded nothing yet.
    pub fn new(config: SimulatedMediaConfig) -> Self {
        Self {
            config,
            last_cost_us: 0,
        }
    }

    fn facts(&self) -> MediaInfo {
        let SimulatedMediaConfig {
            width,
            patch,
            samples,
            seed,
            ..
        } = self.config;
        let words = [width.into(), patch.into(), samples.into(), seed].map(u64::to_le_bytes);
        let parts = [b"simulated media".as_slice()]
            .into_iter()
            .chain(words.iter().map(<[u8; 8]>::as_slice));
        MediaInfo {
            fingerprint: Fingerprint::of(parts),
            width,
        }
    }

    fn bounded(&self, rows: u64) -> Result<u32, String> {
        let most = u64::from(self.config.rows_max);
        match rows {
            0 => Err("it is empty".into()),
            rows if rows > most => Err(format!("it would take {rows} tokens, of at most {most}")),
            rows => Ok(rows as u32),
        }
    }

    fn rows_of(&self, medium: &Decoded<'_>) -> Result<(u32, u64), ModelError> {
        let counted = match medium {
            Decoded::Image { width, height, rgb } => {
                let state = rgb.iter().fold(mix(self.config.seed, (*width).into()), |state, byte| {
                    mix(state, (*byte).into())
                });
                self.image_tokens(*width, *height).map(|rows| (rows, state))
            }
            Decoded::Audio { samples } => {
                let state = samples
                    .iter()
                    .fold(self.config.seed, |state, sample| mix(state, sample.to_bits().into()));
                self.audio_tokens(samples.len() as u64).map(|rows| (rows, state))
            }
        };
        counted.map_err(ModelError::Failed)
    }
}

fn mix(a: u64, b: u64) -> u64 {
    let mixed = (a ^ b)
        .wrapping_add(0x9E37_79B9_7F4A_7C15)
        .wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed ^ (mixed >> 29)
}

impl MediaRules for SimulatedMedia {
    fn info(&self) -> MediaInfo {
        self.facts()
    }

    fn image_tokens(&self, width: u32, height: u32) -> Result<u32, String> {
        let patches = |side: u32| u64::from(side.div_ceil(self.config.patch));
        self.bounded(patches(width) * patches(height))
    }

    fn audio_tokens(&self, samples: u64) -> Result<u32, String> {
        self.bounded(samples.div_ceil(self.config.samples.into()))
    }

    fn sample_rate(&self) -> Option<u32> {
        Some(SAMPLE_RATE)
    }
}

impl MediaEncoder for SimulatedMedia {
    fn info(&self) -> MediaInfo {
        self.facts()
    }

    fn encode(&mut self, media: &[Decoded<'_>]) -> Result<Vec<Arc<[f32]>>, ModelError> {
        let mut rows_in_all = 0;
        let mut results = Vec::with_capacity(media.len());
        for medium in media {
            let (rows, state) = self.rows_of(medium)?;
            rows_in_all += u64::from(rows);
            let numbers = u64::from(rows) * u64::from(self.config.width);
            // From -1 to 1; the upper bits of a mixed word are the good ones.
            let number = |index| (mix(state, index) >> 40) as f32 / (1 << 23) as f32 - 1.0;
            results.push((0..numbers).map(number).collect());
        }
        self.last_cost_us = self.config.cost.batch_us + rows_in_all * self.config.cost.row_ns / 1000;
        Ok(results)
    }

    fn cost_us(&self) -> u64 {
        self.last_cost_us
    }
}

#[cfg(test)]
mod tests;
