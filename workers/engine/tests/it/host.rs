//! A host for tests: steps an engine, proves its invariants after each step, and collects what jobs answer.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use bytes::Bytes;
use cluster_engine::{Config, Cost, Engine, Event, Job, JobId, JobKind, Model, Simulated, SimulatedConfig, Stepped};
use cluster_messages::{
    BlockHash, FinishReason, Generation, MediaFile, Medium, MediumDigest, MediumKind, MediumSource, RequestError,
    Sampling, TokenLogprobs, TokenOut, Usage,
};

pub(crate) const BLOCK_TOKENS: u32 = 4;
pub(crate) const VOCABULARY: u32 = 97;
pub(crate) const CONTEXT: u32 = 64;

/// What a job has said.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Answer {
    pub(crate) admitted: Option<u32>,
    pub(crate) reserved: Option<(u32, u32)>,
    pub(crate) lookup: Option<Vec<BlockHash>>,
    pub(crate) features: Vec<Vec<u32>>,
    pub(crate) tokens: Vec<TokenOut>,
    pub(crate) prompt: Option<Vec<Option<TokenLogprobs>>>,
    pub(crate) pages: Vec<(u32, Bytes)>,
    pub(crate) first: Option<(TokenOut, u32)>,
    pub(crate) end: Option<(FinishReason, Usage)>,
    pub(crate) error: Option<RequestError>,
}

impl Answer {
    pub(crate) fn ids(&self) -> Vec<u32> {
        self.tokens.iter().map(|token| token.id).collect()
    }

    pub(crate) fn is_over(&self) -> bool {
        self.end.is_some() || self.error.is_some() || self.first.is_some()
    }

    pub(crate) fn usage(&self) -> Usage {
        self.end.expect("the job finished").1
    }
}

pub(crate) struct Host {
    pub(crate) engine: Engine,
    pub(crate) answers: BTreeMap<JobId, Answer>,
    pub(crate) evicted: BTreeMap<BlockHash, Bytes>,
    pub(crate) evicted_order: Vec<BlockHash>,
    pub(crate) last: Stepped,
    /// The media of each job, and which of them it waits for.
    media: BTreeMap<JobId, Vec<Medium>>,
    asked: Vec<(JobId, Vec<u32>)>,
    /// Jobs that wait for a lower tier, where the host plays one: it has all pages that were evicted.
    pub(crate) is_tier: bool,
    lookups: Vec<(JobId, Vec<BlockHash>)>,
    held: BTreeSet<BlockHash>,
    now_ms: u64,
}

impl Host {
    pub(crate) fn new(model: impl Model + 'static, config: Config) -> Self {
        Self {
            engine: Engine::new(Box::new(model), config).unwrap(),
            answers: BTreeMap::new(),
            evicted: BTreeMap::new(),
            evicted_order: Vec::new(),
            last: Stepped::default(),
            media: BTreeMap::new(),
            asked: Vec::new(),
            is_tier: false,
            lookups: Vec::new(),
            held: BTreeSet::new(),
            now_ms: 0,
        }
    }

    pub(crate) fn simulated(config: Config) -> Self {
        Self::new(simulated(), config)
    }

    pub(crate) fn submit(&mut self, id: u64, generation: Generation, kind: JobKind) -> Result<(), RequestError> {
        let id = JobId(id);
        self.media.insert(id, generation.media.clone());
        self.engine.submit(Job { id, generation, kind }, self.now_ms)?;
        self.answers.insert(id, Answer::default());
        Ok(())
    }

    /// One step, with all invariants checked behind it.
    pub(crate) fn step(&mut self) {
        let mut events = Vec::new();
        self.now_ms += 1;
        self.last = self.engine.step(self.now_ms, &mut events).unwrap();
        events.into_iter().for_each(|event| self.hear(event));
        self.engine.check().unwrap();
        let held: BTreeSet<BlockHash> = self.engine.held().into_iter().collect();
        assert_eq!(held, self.held, "the events add up to what is held");
    }

    pub(crate) fn run(&mut self) {
        for _ in 0..100_000 {
            if self.engine.has_work() {
                self.step();
            } else if self.asked.is_empty() && self.lookups.is_empty() {
                return;
            }
            self.serve();
        }
        panic!("the engine does not come to rest");
    }

    /// Answers what jobs wait for.
    pub(crate) fn serve(&mut self) {
        for (job, media) in std::mem::take(&mut self.asked) {
            let rows = media
                .iter()
                .map(|index| (*index, rows(&self.media[&job][*index as usize])));
            self.engine.supply(job, rows.collect()).unwrap();
            self.engine.check().unwrap();
        }
        for (job, hashes) in std::mem::take(&mut self.lookups) {
            let pages = hashes.iter().map_while(|hash| self.evicted.get(hash).cloned());
            self.engine.provide(job, pages.collect()).unwrap();
            self.engine.check().unwrap();
        }
    }

    /// Submits one whole job and runs until it is over.
    pub(crate) fn ask(&mut self, id: u64, generation: Generation) -> Answer {
        self.submit(id, generation, JobKind::Whole).unwrap();
        self.run();
        self.answer(id).clone()
    }

    pub(crate) fn answer(&self, id: u64) -> &Answer {
        &self.answers[&JobId(id)]
    }

    fn of(&mut self, job: JobId) -> &mut Answer {
        let answer = self.answers.get_mut(&job).expect("events name submitted jobs");
        assert!(!answer.is_over(), "{job:?} has an event after its end");
        answer
    }

    fn hear(&mut self, event: Event) {
        match event {
            Event::Admitted { job, cached_tokens } => {
                assert_eq!(
                    self.of(job).admitted.replace(cached_tokens),
                    None,
                    "{job:?} is admitted twice"
                );
            }
            Event::Reserved {
                job,
                first_page,
                end_page,
            } => {
                assert_eq!(self.of(job).reserved.replace((first_page, end_page)), None);
            }
            Event::Lookup { job, hashes } => {
                if self.is_tier {
                    self.lookups.push((job, hashes.clone()));
                }
                self.of(job).lookup = Some(hashes);
            }
            Event::Features { job, media } => {
                self.asked.push((job, media.clone()));
                self.of(job).features.push(media);
            }
            Event::Page { job, page, bytes } => self.of(job).pages.push((page, bytes)),
            Event::Prompt { job, logprobs } => assert_eq!(self.of(job).prompt.replace(logprobs), None),
            Event::Tokens { job, tokens } => self.of(job).tokens.extend(tokens),
            Event::Prefilled {
                job,
                first,
                cached_tokens,
            } => self.of(job).first = Some((first, cached_tokens)),
            Event::Finished { job, reason, usage } => self.of(job).end = Some((reason, usage)),
            Event::Failed { job, error } => self.of(job).error = Some(error),
            Event::Stored(hashes) => {
                hashes
                    .into_iter()
                    .for_each(|hash| assert!(self.held.insert(hash), "{hash:?} is stored twice"));
            }
            Event::Removed(hashes) => {
                hashes
                    .into_iter()
                    .for_each(|hash| assert!(self.held.remove(&hash), "{hash:?} was not held"));
            }
            Event::Evicted { hash, bytes } => {
                self.evicted.insert(hash, bytes);
                self.evicted_order.push(hash);
            }
        }
    }
}

pub(crate) const SIMULATED: SimulatedConfig = SimulatedConfig {
    vocabulary: VOCABULARY,
    context: CONTEXT,
    block_tokens: BLOCK_TOKENS,
    seed: 11,
    cost: Cost {
        step_us: 0,
        token_ns: 0,
        attended_ns: 0,
    },
};

pub(crate) fn simulated() -> Simulated {
    Simulated::new(SIMULATED)
}

/// Room for everything, one step per prompt, nothing shared.
pub(crate) fn roomy() -> Config {
    Config {
        block_tokens: BLOCK_TOKENS,
        blocks: vec![64],
        running_max: 64,
        waiting_max: 64,
        step_tokens: 1024,
        tier: false,
        prefix_cache: false,
    }
}

/// The same with a prefix cache.
pub(crate) fn caching() -> Config {
    Config {
        prefix_cache: true,
        ..roomy()
    }
}

pub(crate) fn generation(tokens: Vec<u32>, max_tokens: u32) -> Generation {
    Generation {
        media: Vec::new(),
        prompt_len: tokens.len() as u32,
        tokens,
        sampling: Sampling {
            temperature: 0.0,
            ..Sampling::default()
        },
        max_tokens,
        min_tokens: 0,
        stop_tokens: Vec::new(),
        logprobs: None,
        prompt_logprobs: None,
        cache_salt: String::new(),
        priority: 0,
    }
}

/// `len` tokens; other seeds give others.
pub(crate) fn prompt(seed: u32, len: u32) -> Vec<u32> {
    (0..len)
        .map(|index| (seed * 31 + index * 7 + index * index * seed) % VOCABULARY)
        .collect()
}

/// Numbers of a row in models that take media.
pub(crate) const WIDTH: u32 = 3;

/// A simulated model that reads the last `window` positions of its second class, and takes media.
pub(crate) fn windowed(window: u32) -> Simulated {
    simulated().with_window(window).with_width(WIDTH)
}

/// A picture at `first..first + tokens`.
pub(crate) fn medium(name: u128, first: u32, tokens: u32) -> Medium {
    Medium {
        kind: MediumKind::Image,
        digest: MediumDigest(name),
        first,
        tokens,
        source: MediumSource::File(MediaFile {
            kind: MediumKind::Image,
            bytes: Bytes::new(),
        }),
    }
}

/// The rows of a medium: other digests have others.
pub(crate) fn rows(medium: &Medium) -> Arc<[f32]> {
    let numbers = 0..medium.tokens * WIDTH;
    numbers
        .map(|index| (medium.digest.0 as u32 * 1000 + index) as f32)
        .collect()
}
