//! What a node hands to the roles that deal with pictures and sounds. The formats of files are known behind the traits here,
//! not to the roles.

use std::{sync::Arc, time::Duration};

use cluster_engine::{Decoded, MediaEncoderFactory};
use cluster_messages::{ErrorKind, MediaFile, MediumDigest, RequestError};

/// What the tokenizer must know of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Measured {
    /// Names its embeddings.
    pub digest: MediumDigest,
    /// Placeholder tokens that stand for it, at least one.
    pub tokens: u32,
}

/// Looks at a file without decoding it.
pub trait MediaMeasure: Send + Sync {
    /// Its name and size for the model; the error is the client's.
    fn measure(&self, file: &MediaFile) -> Result<Measured, RequestError>;
}

/// A decoded medium, owned: what [`Decoded`] borrows from.
#[derive(Clone, PartialEq, Debug)]
pub enum OwnedMedium {
    /// A picture: `rgb` is `[height, width, 3]`.
    Image {
        /// Pixels of a row.
        width: u32,
        /// Rows.
        height: u32,
        /// Red, green, blue of each pixel, row after row.
        rgb: Vec<u8>,
    },
    /// A sound: one channel at the rate the model was made for.
    Audio {
        /// Between -1 and 1.
        samples: Vec<f32>,
    },
}

impl OwnedMedium {
    /// As a media model takes it.
    pub fn as_decoded(&self) -> Decoded<'_> {
        match self {
            OwnedMedium::Image { width, height, rgb } => Decoded::Image {
                width: *width,
                height: *height,
                rgb,
            },
            OwnedMedium::Audio { samples } => Decoded::Audio { samples },
        }
    }
}

/// Decodes files. Called on threads that may compute for long.
pub trait MediaDecode: Send + Sync {
    /// The pixels or samples of a file that was measured before; the error is the client's.
    fn decode(&self, file: &MediaFile) -> Result<OwnedMedium, RequestError>;
}

/// How media are encoded at one place: an encoder instance, or a worker that encodes for itself.
#[derive(Clone)]
pub struct EncoderSettings {
    /// Requests inside at once, those in work included; further ones are told to come back.
    pub waiting_max: u32,
    /// Media in one batch.
    pub batch_max: u32,
    /// Rows in one batch; a medium with more of them runs alone.
    pub batch_rows: u32,
    /// Memory for embeddings, those that are being made included.
    pub cache_bytes: usize,
    /// Files decoded at the same time.
    pub threads: u32,
    /// Decodes files.
    pub decode: Arc<dyn MediaDecode>,
    /// Builds the media model, at each start again.
    pub factory: MediaEncoderFactory,
}

/// Where the media of prompts are encoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MediaPolicy {
    /// By encoders; without them whoever computes a prompt encodes its media.
    pub apart: bool,
    /// Whoever computes a prompt may encode its media when no encoder does.
    pub fallback_local: bool,
    /// An encoder that says nothing for this long has stalled.
    pub stall: Duration,
    /// How long a request without a fallback waits for an encoder with room.
    pub patience: Duration,
}

impl Default for MediaPolicy {
    fn default() -> Self {
        Self {
            apart: false,
            fallback_local: true,
            stall: Duration::from_secs(10),
            patience: Duration::from_secs(15),
        }
    }
}

/// The field of a generation that medium number `index` is.
pub(crate) fn field_of(index: usize) -> String {
    format!("media[{index}]")
}

/// `error` of medium number `index` of a generation: where the file is wrong, the error names it.
pub(crate) fn about(index: usize, error: RequestError) -> RequestError {
    if error.kind != ErrorKind::Invalid || error.param.is_some() {
        return error;
    }
    RequestError {
        param: Some(field_of(index)),
        ..error
    }
}
