//! A host for tests: steps an engine, proves its invariants after each step, and collects what jobs answer.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use cluster_engine::{Config, Cost, Engine, Event, Job, JobId, JobKind, Model, Simulated, SimulatedConfig, Stepped};
use cluster_messages::{BlockHash, FinishReason, Generation, RequestError, Sampling, TokenLogprobs, TokenOut, Usage};

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
            held: BTreeSet::new(),
            now_ms: 0,
        }
    }

    pub(crate) fn simulated(config: Config) -> Self {
        Self::new(simulated(), config)
    }

    pub(crate) fn submit(&mut self, id: u64, generation: Generation, kind: JobKind) -> Result<(), RequestError> {
        let id = JobId(id);
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
            if !self.engine.has_work() {
                return;
            }
            self.step();
        }
        panic!("the engine does not come to rest");
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
            Event::Lookup { job, hashes } => self.of(job).lookup = Some(hashes),
            Event::Features { job, media } => self.of(job).features.push(media),
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
