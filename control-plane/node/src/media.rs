//! Pictures and sounds between the parts that know files (`cluster-media`), towers (`cluster-models`) and requests
//! (`cluster-roles`).

use std::sync::Arc;

use cluster_engine::{MediaEncoderFactory, MediaRules};
use cluster_media::{Limits, MediaError};
use cluster_messages::{ErrorKind, Fingerprint, MediaFile, MediumDigest, MediumKind, RequestError};
use cluster_plan::EncoderSettings as Planned;
use cluster_roles::{EncoderSettings, Measured, MediaDecode, MediaMeasure, OwnedMedium};
use cluster_topologies::schema::MediaLimits;

/// Rows of one batch: what four of the largest pictures of the big model take.
const BATCH_ROWS: u32 = 16 * 1024;

/// The media side of a served model.
#[derive(Clone)]
pub(crate) struct Media {
    files: Arc<Files>,
    /// By ranks.
    factories: Arc<dyn Fn(u32) -> MediaEncoderFactory + Send + Sync>,
}

impl Media {
    pub(crate) fn new(
        rules: Arc<dyn MediaRules>,
        limits: &MediaLimits,
        factories: Arc<dyn Fn(u32) -> MediaEncoderFactory + Send + Sync>,
    ) -> Self {
        let limits = Limits {
            bytes_max: limits.bytes_max.bytes(),
            pixels_max: limits.pixels_max,
            ..Limits::default()
        };
        Self {
            files: Arc::new(Files { rules, limits }),
            factories,
        }
    }

    pub(crate) fn measure(&self) -> Arc<dyn MediaMeasure> {
        self.files.clone()
    }

    /// How an instance encodes that is spread over `ranks`.
    pub(crate) fn settings(&self, planned: &Planned, ranks: u32) -> EncoderSettings {
        EncoderSettings {
            waiting_max: planned.waiting_max,
            batch_max: planned.batch_max,
            batch_rows: BATCH_ROWS,
            cache_bytes: usize::try_from(planned.cache_bytes).unwrap_or(usize::MAX),
            threads: crate::inventory::cores(),
            decode: self.files.clone(),
            factory: (self.factories)(ranks),
        }
    }
}

/// Files as the model takes them.
struct Files {
    rules: Arc<dyn MediaRules>,
    limits: Limits,
}

impl MediaMeasure for Files {
    fn measure(&self, file: &MediaFile) -> Result<Measured, RequestError> {
        self.limits.check_bytes(file.bytes.len() as u64).map_err(refused)?;
        let tokens = match file.kind {
            MediumKind::Image => {
                let probe = cluster_media::probe(&file.bytes).map_err(refused)?;
                self.limits.check_picture(&probe).map_err(refused)?;
                self.rules.image_tokens(probe.width, probe.height).map_err(unfit)?
            }
            MediumKind::Audio => {
                let probe = cluster_media::probe_sound(&file.bytes).map_err(refused)?;
                self.limits.check_sound(&probe).map_err(refused)?;
                let samples = probe.samples_at(self.sample_rate()?);
                self.rules.audio_tokens(samples).map_err(unfit)?
            }
        };
        Ok(Measured {
            digest: self.digest(file),
            tokens,
        })
    }
}

impl Files {
    fn sample_rate(&self) -> Result<u32, RequestError> {
        self.rules
            .sample_rate()
            .ok_or_else(|| unfit("this model takes no sounds: leave them out".into()))
    }

    fn digest(&self, file: &MediaFile) -> MediumDigest {
        let model = self.rules.info().fingerprint.0.to_le_bytes();
        let parts = [&model[..], file.kind.name().as_bytes(), &file.bytes];
        MediumDigest(Fingerprint::of(parts).0)
    }
}

impl MediaDecode for Files {
    fn decode(&self, file: &MediaFile) -> Result<OwnedMedium, RequestError> {
        Ok(match file.kind {
            MediumKind::Image => {
                let picture = cluster_media::picture(&file.bytes, &self.limits).map_err(refused)?;
                OwnedMedium::Image {
                    width: picture.width,
                    height: picture.height,
                    rgb: picture.rgb,
                }
            }
            MediumKind::Audio => OwnedMedium::Audio {
                samples: cluster_media::sound(&file.bytes, &self.limits, self.sample_rate()?).map_err(refused)?,
            },
        })
    }
}

fn refused(error: MediaError) -> RequestError {
    unfit(format!("the file {error}"))
}

/// The tokenizer names the part of the message it came in.
fn unfit(message: String) -> RequestError {
    RequestError::new(ErrorKind::Invalid, message)
}
