//! What turns pictures and sounds into embeddings. Real towers (`cluster-models`) and a simulated encoder stand behind it.
//! It knows pixels and samples; not files, nor who asked.

use std::sync::Arc;

use cluster_messages::Fingerprint;

use crate::ModelError;

/// A medium, decoded.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Decoded<'a> {
    /// A picture: `rgb` is `[height, width, 3]`.
    Image {
        /// Pixels of a row.
        width: u32,
        /// Rows.
        height: u32,
        /// Red, green, blue of each pixel, row after row.
        rgb: &'a [u8],
    },
    /// A sound: one channel at the rate the model was made for.
    Audio {
        /// Between -1 and 1.
        samples: &'a [f32],
    },
}

/// What the rest of the system must know of a media model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MediaInfo {
    /// Equal means: same embeddings for the same file. Covers weights and preprocessing.
    pub fingerprint: Fingerprint,
    /// Numbers of a row: the language model's width.
    pub width: u32,
}

/// How many rows a medium becomes, and why it cannot be taken. Needs no weights.
pub trait MediaRules: Send + Sync {
    /// The constant facts.
    fn info(&self) -> MediaInfo;

    /// Rows of a picture of this size.
    fn image_tokens(&self, width: u32, height: u32) -> Result<u32, String>;

    /// Rows of a sound of this many samples at `sample_rate`.
    fn audio_tokens(&self, samples: u64) -> Result<u32, String>;

    /// Samples a second that audio must have; none when the model does not take sounds.
    fn sample_rate(&self) -> Option<u32>;
}

/// A media model that can run. Results are `[rows, width]`; they depend, to the last bit, on the medium alone.
pub trait MediaEncoder: Send {
    /// The constant facts.
    fn info(&self) -> MediaInfo;

    /// One result per medium, in order. An error ends the encoder's life; what is wrong with a single medium was found by
    /// `MediaRules`.
    fn encode(&mut self, media: &[Decoded<'_>]) -> Result<Vec<Arc<[f32]>>, ModelError>;

    /// Microseconds that the last `encode` would have taken on the machine a model without weights stands for. Zero for a
    /// real model, whose time has passed already.
    fn cost_us(&self) -> u64 {
        0
    }
}

/// Builds a media model, at each start of an encoder again. Weights are shared.
pub type MediaEncoderFactory = Arc<dyn Fn() -> Result<Box<dyn MediaEncoder>, ModelError> + Send + Sync>;
