//! One running media model: shared weights, ranks of its own, behind the engine's `MediaEncoder` trait.

use std::{ops::Range, sync::Arc};

use cluster_engine::{Decoded, MediaEncoder, MediaInfo, ModelError};
use cluster_kernels::{Collective, Cpu, CpuOptions, shared_memory};

use super::{
    audio::Audio,
    patches::{Frames, Patches, Preparation},
    rules::{NO_PICTURES, Rules},
    vision::{Frame, Layers, Vision},
};
use crate::crew::{Crew, Work};

/// What all instances share.
pub(crate) struct Shared {
    pub(crate) rules: Arc<Rules>,
    pub(crate) ranks: usize,
    pub(crate) vision: Option<Tower>,
    pub(crate) audio: Option<Arc<Audio>>,
    /// Threads of a rank.
    pub(crate) threads: usize,
}

/// The vision tower.
pub(crate) struct Tower {
    pub(crate) frame: Arc<Frame>,
    /// One part for each rank.
    pub(crate) layers: Vec<Arc<Layers>>,
}

/// A batch, prepared.
#[derive(Default)]
struct Job {
    patches: Patches,
    sounds: Vec<Vec<f32>>,
}

/// One rank's results: its rows of all pictures, and the sounds that are its.
struct Part {
    rows: Vec<f32>,
    sounds: Vec<Vec<f32>>,
}

/// The rows of a batch, each kind in order.
struct Encoded {
    pictures: Vec<Arc<[f32]>>,
    sounds: Vec<Arc<[f32]>>,
}

/// A media model that can run.
pub struct Encoder {
    rules: Arc<Rules>,
    crew: Crew<Job, Part>,
    ranks: usize,
}

impl Encoder {
    pub(crate) fn new(shared: &Shared) -> Result<Self, ModelError> {
        let ranks = shared.ranks;
        let mut ends: Vec<Option<Box<dyn Collective>>> = vec![None];
        if ranks > 1 {
            let boxed = |end| Some(Box::new(end) as Box<dyn Collective>);
            ends = shared_memory(ranks).into_iter().map(boxed).collect();
        }
        let works = ends
            .into_iter()
            .enumerate()
            .map(|(rank, others)| work(shared, rank, others));
        Ok(Self {
            rules: Arc::clone(&shared.rules),
            crew: Crew::start(works.collect::<Result<_, _>>()?)?,
            ranks,
        })
    }

    /// The rows of a video: frames of one size, each `[height, width, 3]`, two to a clip.
    pub fn encode_frames(&mut self, width: u32, height: u32, frames: &[&[u8]]) -> Result<Arc<[f32]>, ModelError> {
        let mut job = Job::default();
        self.prepare(width, height, frames, &mut job)?;
        let mut encoded = self.run(job)?;
        encoded
            .pictures
            .pop()
            .ok_or_else(|| ModelError::Failed("a video without frames".into()))
    }

    fn prepare(&self, width: u32, height: u32, frames: &[&[u8]], job: &mut Job) -> Result<(), ModelError> {
        let len = u64::from(width) * u64::from(height) * 3;
        if len == 0 || frames.iter().any(|rgb| rgb.len() as u64 != len) {
            return Err(ModelError::Failed(format!(
                "a picture of {width} x {height} pixels has other bytes than its {len}"
            )));
        }
        let spec = &self.rules.spec;
        let Some(vision) = &spec.vision else {
            return Err(ModelError::Failed(NO_PICTURES.into()));
        };
        let frames = Frames {
            height: height as usize,
            width: width as usize,
            rgb: frames,
        };
        Preparation::new(vision, &spec.pictures).add(frames, &mut job.patches);
        Ok(())
    }

    fn run(&mut self, job: Job) -> Result<Encoded, ModelError> {
        let vision = self.rules.spec.vision.as_ref();
        let cell = vision.map_or(1, |vision| vision.merge * vision.merge);
        let lengths: Vec<usize> = job.patches.grids.iter().map(|grid| grid.patches() / cell).collect();
        let sounds = job.sounds.len();
        let mut parts = self.crew.run(job)?;
        let rows: Vec<f32> = parts.iter().flat_map(|part| &part.rows).copied().collect();
        let width = self.rules.spec.width;
        let mut start = 0;
        let pictures = lengths.into_iter().map(|tokens| {
            let picture = Range {
                start,
                end: start + tokens * width,
            };
            start = picture.end;
            Arc::from(&rows[picture])
        });
        let pictures = pictures.collect();
        // Rank r has the sounds r, r + ranks, …
        let sounds = (0..sounds).map(|index| {
            let own = &mut parts[index % self.ranks].sounds[index / self.ranks];
            Arc::from(std::mem::take(own))
        });
        Ok(Encoded {
            pictures,
            sounds: sounds.collect(),
        })
    }
}

/// One rank, ready for jobs.
fn work(shared: &Shared, rank: usize, others: Option<Box<dyn Collective>>) -> Result<Work<Job, Part>, ModelError> {
    let failed = |error: &dyn std::error::Error| ModelError::Failed(error.to_string());
    let options = CpuOptions {
        threads: shared.threads,
        isa: None,
    };
    let cpu = Cpu::new(options).map_err(|error| failed(&error))?;
    let ranks = shared.ranks;
    let vision = shared.vision.as_ref().map(|tower| Vision {
        frame: Arc::clone(&tower.frame),
        layers: Arc::clone(&tower.layers[rank]),
        others,
    });
    let audio = shared.audio.clone();
    Ok(Box::new(move |job: &Job| {
        let rows = match &vision {
            Some(vision) if !job.patches.grids.is_empty() => vision.run(&cpu, &job.patches),
            _ => Ok(Vec::new()),
        };
        let rows = rows.map_err(|error| failed(&error))?;
        let own = job.sounds.iter().skip(rank).step_by(ranks);
        let sounds = own.filter_map(|samples| Some(audio.as_ref()?.run(&cpu, samples)));
        Ok(Part {
            rows,
            sounds: sounds.collect(),
        })
    }))
}

impl MediaEncoder for Encoder {
    fn info(&self) -> MediaInfo {
        self.rules.info
    }

    fn encode(&mut self, media: &[Decoded<'_>]) -> Result<Vec<Arc<[f32]>>, ModelError> {
        let mut job = Job::default();
        for medium in media {
            match medium {
                Decoded::Image { width, height, rgb } => self.prepare(*width, *height, &[*rgb], &mut job)?,
                Decoded::Audio { .. } if self.rules.spec.audio.is_none() => {
                    return Err(ModelError::Failed("this model takes no sounds".into()));
                }
                Decoded::Audio { samples } => job.sounds.push(samples.to_vec()),
            }
        }
        let Encoded { pictures, sounds } = self.run(job)?;
        let (mut pictures, mut sounds) = (pictures.into_iter(), sounds.into_iter());
        let results = media.iter().map(|medium| match medium {
            Decoded::Image { .. } => pictures.next(),
            Decoded::Audio { .. } => sounds.next(),
        });
        let results: Option<Vec<_>> = results.collect();
        Ok(results.expect("there is a result for every medium that was prepared"))
    }
}
