//! What tests of media share: files whose pixels are their bytes, and a media model that tells what it did.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU32, Ordering},
};

use bytes::Bytes;
use cluster_engine::{
    Config, Cost, Decoded, MediaCost, MediaEncoder, MediaInfo, ModelError, Simulated, SimulatedConfig, SimulatedMedia,
    SimulatedMediaConfig,
};
use cluster_messages::{ErrorKind, MediaFile, MediumDigest, MediumKind, RequestError, Role};

use crate::{
    WorkerSettings,
    media::{EncoderSettings, MediaDecode, OwnedMedium},
};

/// Numbers of a row.
pub(crate) const WIDTH: u32 = 8;
/// What the language model knows: bytes and a few controls.
pub(crate) const VOCABULARY: u32 = 261;
pub(crate) const CONTEXT: u32 = 64;
pub(crate) const BLOCK_TOKENS: u32 = 4;
/// A file that begins with this is no picture.
pub(crate) const BROKEN: u8 = 254;
/// A file whose head is that of a picture, but not what follows.
pub(crate) const TORN: u8 = 253;
/// The model panics at a picture that begins with this.
pub(crate) const POISON: u8 = 255;

/// What decoder and model were asked to do.
#[derive(Clone, Default)]
pub(crate) struct Seen {
    decoded: Arc<AtomicU32>,
    batches: Arc<Mutex<Vec<usize>>>,
}

impl Seen {
    /// Files decoded.
    pub(crate) fn decoded(&self) -> u32 {
        self.decoded.load(Ordering::Relaxed)
    }

    /// Media in each batch.
    pub(crate) fn batches(&self) -> Vec<usize> {
        self.batches.lock().unwrap().clone()
    }
}

impl MediaDecode for Seen {
    fn decode(&self, file: &MediaFile) -> Result<OwnedMedium, RequestError> {
        self.decoded.fetch_add(1, Ordering::Relaxed);
        if [BROKEN, TORN].contains(&file.bytes[0]) {
            return Err(RequestError::new(ErrorKind::Invalid, "not a picture"));
        }
        Ok(OwnedMedium::Image {
            width: file.bytes.len() as u32 / 3,
            height: 1,
            rgb: file.bytes.to_vec(),
        })
    }
}

struct Watched {
    model: SimulatedMedia,
    seen: Seen,
}

impl MediaEncoder for Watched {
    fn info(&self) -> MediaInfo {
        MediaEncoder::info(&self.model)
    }

    fn encode(&mut self, media: &[Decoded<'_>]) -> Result<Vec<Arc<[f32]>>, ModelError> {
        self.seen.batches.lock().unwrap().push(media.len());
        let is_poison = |medium: &Decoded<'_>| matches!(medium, Decoded::Image { rgb, .. } if rgb[0] == POISON);
        assert!(!media.iter().any(is_poison), "a poisoned picture");
        self.model.encode(media)
    }

    fn cost_us(&self) -> u64 {
        self.model.cost_us()
    }
}

/// The model; a batch takes `batch_ms`.
pub(crate) fn model(batch_ms: u64) -> SimulatedMedia {
    SimulatedMedia::new(SimulatedMediaConfig {
        width: WIDTH,
        patch: 1,
        samples: 1,
        rows_max: 1 << 20,
        seed: 1,
        cost: MediaCost {
            batch_us: batch_ms * 1000,
            row_ns: 0,
        },
    })
}

/// Room for plenty; batches of four.
pub(crate) fn settings(batch_ms: u64, seen: &Seen) -> EncoderSettings {
    let watched = seen.clone();
    EncoderSettings {
        waiting_max: 64,
        batch_max: 4,
        batch_rows: 1 << 20,
        cache_bytes: 1 << 24,
        threads: 2,
        decode: Arc::new(seen.clone()),
        factory: Arc::new(move || {
            Ok(Box::new(Watched {
                model: model(batch_ms),
                seen: watched.clone(),
            }))
        }),
    }
}

/// A picture of `rows` pixels; different `number`s differ.
pub(crate) fn picture(number: u8, rows: u32) -> MediaFile {
    MediaFile {
        kind: MediumKind::Image,
        bytes: Bytes::from(vec![number; 3 * rows as usize]),
    }
}

pub(crate) fn digest(number: u8) -> MediumDigest {
    MediumDigest(number.into())
}

/// The rows that the model makes of a picture.
pub(crate) fn rows_of(file: &MediaFile) -> Arc<[f32]> {
    let medium = Seen::default().decode(file).unwrap();
    model(0).encode(&[medium.as_decoded()]).unwrap().remove(0)
}

/// A simulated model for which the rows of a medium stand where its placeholders do.
fn seeing() -> Simulated {
    let config = SimulatedConfig {
        vocabulary: VOCABULARY,
        context: CONTEXT,
        block_tokens: BLOCK_TOKENS,
        seed: 1,
        cost: Cost::default(),
    };
    Simulated::new(config).with_width(WIDTH)
}

/// A worker of that model.
pub(crate) fn worker(encoder: Option<EncoderSettings>, folds: Vec<Role>) -> WorkerSettings {
    WorkerSettings {
        engine: Config {
            block_tokens: BLOCK_TOKENS,
            blocks: vec![64],
            running_max: 4,
            waiting_max: 4,
            step_tokens: 5,
            tier: false,
            prefix_cache: true,
        },
        folds,
        needs: Vec::new(),
        factory: Arc::new(|| Ok(Box::new(seeing()))),
        encoder,
    }
}
