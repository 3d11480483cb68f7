//! How fast a model runs on this machine, measured through the engine: scheduling and sampling included, actors and HTTP not.

use std::time::{Duration, Instant};

use cluster_engine::{Config, Engine, Event, Job, JobId, JobKind, ModelError as EngineError};
use cluster_kernels::Isa;
use cluster_messages::{Generation, RequestError, Sampling};

use crate::{inventory, model::ServedModel};

/// Tokens of a prompt before decoding is measured, and of an answer while it is.
const PROMPT: u32 = 128;
const ANSWER: u32 = 64;
const BLOCK_TOKENS: u32 = 16;

/// What to measure.
#[derive(Clone, Debug)]
pub struct BenchOptions {
    /// Threads of the model.
    pub threads: u32,
    /// Each figure is the best of this many runs.
    pub repeat: u32,
    /// Lengths of the prompts that are computed.
    pub prompts: Vec<u32>,
    /// Numbers of sequences that are decoded together.
    pub batches: Vec<u32>,
}

/// What it is measured on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Machine {
    /// Cores this process may use.
    pub cores: u32,
    /// The instructions that the kernels use here.
    pub isa: &'static str,
}

/// This machine.
pub fn machine() -> Machine {
    Machine {
        cores: inventory::cores(),
        isa: match Isa::detect() {
            Isa::Scalar => "scalar",
            Isa::Avx2 => "avx2",
            Isa::Avx512 => "avx512",
        },
    }
}

/// One figure.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Measured {
    /// Whether prompts were computed, or answers decoded.
    pub is_prefill: bool,
    /// Prompt length, or sequences decoded together.
    pub size: u32,
    /// Tokens computed in the measured time.
    pub tokens: u32,
    /// The measured time.
    pub time: Duration,
}

impl Measured {
    /// Tokens per second.
    pub fn rate(&self) -> f64 {
        f64::from(self.tokens) / self.time.as_secs_f64()
    }
}

/// Why a measurement failed.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The model or its engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A prompt was refused.
    #[error(transparent)]
    Refused(#[from] RequestError),
}

/// Measures `model`; `report` hears each figure as it is there.
pub fn bench(model: &ServedModel, options: &BenchOptions, mut report: impl FnMut(Measured)) -> Result<(), BenchError> {
    for &prompt in options.prompts.iter().filter(|prompt| **prompt < model.facts.context) {
        report(best_of(options.repeat, || prefill(model, options.threads, prompt))?);
    }
    for &batch in &options.batches {
        report(best_of(options.repeat, || decode(model, options.threads, batch))?);
    }
    Ok(())
}

fn best_of(repeat: u32, mut run: impl FnMut() -> Result<Measured, BenchError>) -> Result<Measured, BenchError> {
    let mut best = run()?;
    for _ in 1..repeat {
        let next = run()?;
        if next.time < best.time {
            best = next;
        }
    }
    Ok(best)
}

fn prefill(model: &ServedModel, threads: u32, prompt: u32) -> Result<Measured, BenchError> {
    let mut engine = engine(model, threads, 1, prompt + 1)?;
    engine.submit(job(0, prompt, 1, model.facts.vocabulary), 0)?;
    let began = Instant::now();
    run_until(&mut engine, |event| matches!(event, Event::Finished { .. }), 1)?;
    Ok(Measured {
        is_prefill: true,
        size: prompt,
        tokens: prompt,
        time: began.elapsed(),
    })
}

/// The time from the moment all sequences have their first token until all have their last.
fn decode(model: &ServedModel, threads: u32, batch: u32) -> Result<Measured, BenchError> {
    let mut engine = engine(model, threads, batch, PROMPT + ANSWER + 1)?;
    for id in 0..batch {
        engine.submit(job(id, PROMPT, ANSWER + 1, model.facts.vocabulary), 0)?;
    }
    let early = run_until(&mut engine, |event| matches!(event, Event::Tokens { .. }), batch)?;
    let began = Instant::now();
    run_until(&mut engine, |event| matches!(event, Event::Finished { .. }), batch)?;
    // Sequences whose prompt came first have decoded a few tokens already.
    let tokens = batch * (ANSWER + 1) - early;
    Ok(Measured {
        is_prefill: false,
        size: batch,
        tokens,
        time: began.elapsed(),
    })
}

fn engine(model: &ServedModel, threads: u32, sequences: u32, tokens: u32) -> Result<Engine, BenchError> {
    let config = Config {
        block_tokens: BLOCK_TOKENS,
        blocks: vec![sequences * tokens.div_ceil(BLOCK_TOKENS)],
        running_max: sequences,
        waiting_max: sequences,
        step_tokens: 512,
        tier: false,
        prefix_cache: false,
    };
    Ok(Engine::new(model.factory(threads)()?, config)?)
}

/// Steps until each of `jobs` jobs had an event that `counts`; returns how many tokens came meanwhile.
fn run_until(engine: &mut Engine, counts: impl Fn(&Event) -> bool, jobs: u32) -> Result<u32, BenchError> {
    let (mut seen, mut tokens, mut events) = (std::collections::BTreeSet::new(), 0, Vec::new());
    while (seen.len() as u32) < jobs {
        engine.step(0, &mut events)?;
        for event in events.drain(..) {
            if let Event::Tokens { tokens: more, .. } = &event {
                tokens += more.len() as u32;
            }
            match &event {
                Event::Failed { error, .. } => return Err(error.clone().into()),
                Event::Tokens { job, .. } | Event::Finished { job, .. } if counts(&event) => {
                    seen.insert(*job);
                }
                _ => {}
            }
        }
    }
    Ok(tokens)
}

/// Tokens spread over the vocabulary, different for each job, the same in each run.
fn job(id: u32, prompt: u32, max_tokens: u32, vocabulary: u32) -> Job {
    let token = |position: u32| (position + 1).wrapping_mul(2_654_435_761).wrapping_add(id * 97) % vocabulary;
    Job {
        id: JobId(id.into()),
        kind: JobKind::Whole,
        generation: Generation {
            media: Vec::new(),
            tokens: (0..prompt).map(token).collect(),
            prompt_len: prompt,
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
        },
    }
}
