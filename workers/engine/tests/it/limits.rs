//! Where answers end, and what is refused.

use cluster_engine::{BlockId, Config, Engine, JobId, JobKind, KvKind, Model, ModelError, ModelInfo};
use cluster_messages::{ErrorKind, FinishReason, Generation, Usage};

use crate::host::{CONTEXT, Host, VOCABULARY, caching, generation, prompt, roomy, simulated};

#[test]
fn answers_end_at_their_limit_at_the_context_and_at_stop_tokens() {
    let mut host = Host::simulated(roomy());
    let (reason, usage) = host.ask(0, generation(prompt(1, 10), 7)).end.unwrap();
    assert_eq!(reason, FinishReason::Length);
    assert_eq!(
        usage,
        Usage {
            prompt_tokens: 10,
            completion_tokens: 7,
            ..Usage::default()
        }
    );

    let near = host.ask(1, generation(prompt(1, CONTEXT - 8), 100));
    assert_eq!((near.end.unwrap().0, near.tokens.len()), (FinishReason::Length, 8));
    let nearest = host.ask(2, generation(prompt(1, CONTEXT - 1), 1));
    assert_eq!(
        (nearest.end.unwrap().0, nearest.tokens.len()),
        (FinishReason::Length, 1)
    );

    let free = host.ask(3, generation(prompt(5, 10), 30)).ids();
    let stop = free[4];
    let first = free.iter().position(|token| *token == stop).unwrap();
    let stopped = host.ask(
        4,
        Generation {
            stop_tokens: vec![stop],
            ..generation(prompt(5, 10), 30)
        },
    );
    assert_eq!(
        stopped.ids(),
        free[..=first],
        "the stop token itself is part of the answer"
    );
    assert_eq!(stopped.end.unwrap().0, FinishReason::Stop);
    assert_eq!(stopped.usage().completion_tokens, first as u32 + 1);
}

#[test]
fn stop_tokens_are_not_chosen_before_the_minimum() {
    let mut host = Host::simulated(roomy());
    // Every token but one would stop, so that one fills the minimum.
    let stop_tokens: Vec<u32> = (0..VOCABULARY).filter(|token| *token != 42).collect();
    let request = Generation {
        stop_tokens,
        min_tokens: 5,
        ..generation(prompt(1, 6), 20)
    };
    let ids = host.ask(0, request).ids();
    assert_eq!(ids[..5], [42; 5]);
    assert_ne!(ids[5], 42);
    assert_eq!(ids.len(), 6);
}

#[test]
fn nothing_to_generate_ends_without_work() {
    let mut host = Host::simulated(roomy());
    let answer = host.ask(0, generation(prompt(1, 10), 0));
    assert_eq!(
        answer.end,
        Some((
            FinishReason::Length,
            Usage {
                prompt_tokens: 10,
                ..Usage::default()
            }
        ))
    );
    let mut moved = generation(prompt(1, 10), 3);
    moved.tokens.extend([1, 2, 3]);
    assert_eq!(host.ask(1, moved.clone()).usage().completion_tokens, 3);
    host.submit(2, moved, JobKind::Decode).unwrap();
    host.run();
    assert_eq!(
        (host.answer(2).reserved, host.answer(2).usage().completion_tokens),
        (None, 3)
    );
    assert_eq!(host.engine.counters().ran_tokens, 0);
}

#[test]
fn a_small_pool_is_the_context() {
    let mut host = Host::simulated(Config {
        blocks: vec![5],
        ..caching()
    });
    assert_eq!(host.engine.context(), 20);
    let answer = host.ask(0, generation(prompt(1, 12), 100));
    assert_eq!((answer.tokens.len(), answer.end.unwrap().0), (8, FinishReason::Length));
    let error = host
        .submit(1, generation(prompt(1, 20), 1), JobKind::Whole)
        .unwrap_err();
    assert_eq!(error.kind, ErrorKind::ContextLength);
    assert!(error.message.contains("20 tokens"), "{error}");
}

#[test]
fn full_means_refused_with_advice() {
    let mut host = Host::simulated(Config {
        running_max: 1,
        waiting_max: 2,
        ..roomy()
    });
    for id in 0..3 {
        host.submit(id, generation(prompt(1, 4), 4), JobKind::Whole).unwrap();
    }
    let error = host.submit(3, generation(prompt(1, 4), 4), JobKind::Whole).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Overloaded);
    assert!(error.retry_after_ms.is_some());
    host.run();
    host.submit(3, generation(prompt(1, 4), 4), JobKind::Whole).unwrap();
    let error = host.submit(3, generation(prompt(1, 4), 4), JobKind::Whole).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Internal, "the name is taken: {error}");
}

#[test]
fn an_aborted_job_is_silent_and_holds_nothing() {
    let mut host = Host::simulated(caching());
    host.submit(0, generation(prompt(1, 20), 30), JobKind::Whole).unwrap();
    host.submit(1, generation(prompt(2, 20), 30), JobKind::Whole).unwrap();
    (0..5).for_each(|_| host.step());
    let before = host.answer(0).clone();
    assert!(host.engine.abort(JobId(0)));
    assert!(!host.engine.abort(JobId(0)));
    host.engine.check().unwrap();
    assert_eq!(
        host.engine.load(0).blocks_used,
        6,
        "the prompt and four tokens of the other"
    );
    host.run();
    assert_eq!(host.answer(0), &before);
    assert_eq!(host.answer(1).tokens.len(), 30);
    // What it computed can still be found.
    assert_eq!(host.ask(2, generation(prompt(1, 20), 1)).usage().cached_tokens, 16);
}

#[test]
fn engines_that_cannot_work_are_not_built() {
    let error = |config| Engine::new(Box::new(simulated()), config).err().unwrap().to_string();
    assert_eq!(
        error(Config {
            blocks: vec![0],
            ..roomy()
        }),
        "blocks is 0; it must be at least 1"
    );
    assert_eq!(
        error(Config {
            step_tokens: 0,
            ..roomy()
        }),
        "step_tokens is 0; it must be at least 1"
    );
    let blocks_differ = error(Config {
        block_tokens: 8,
        ..roomy()
    });
    assert_eq!(
        blocks_differ,
        "KV class 0 has blocks of 4 tokens, the engine is set to 8"
    );
    let window = Engine::new(Box::new(Windowed::new()), roomy())
        .err()
        .unwrap()
        .to_string();
    assert_eq!(window, "KV class 0 is Window { tokens: 8 }; it must be Full");
}

/// A model whose first class is not full.
struct Windowed(ModelInfo);

impl Windowed {
    fn new() -> Self {
        let mut info = simulated().info().clone();
        info.classes[0].kind = KvKind::Window { tokens: 8 };
        Self(info)
    }
}

impl Model for Windowed {
    fn info(&self) -> &ModelInfo {
        &self.0
    }

    fn allocate(&mut self, _blocks: &[u32]) -> Result<(), ModelError> {
        Err(ModelError::Memory("never asked".into()))
    }

    fn forward(&mut self, _: &cluster_engine::Batch<'_>, _: &mut cluster_engine::Outputs) -> Result<(), ModelError> {
        Ok(())
    }

    fn export(&self, _class: usize, _block: BlockId, _out: &mut Vec<u8>) {}

    fn import(&mut self, _class: usize, _block: BlockId, _bytes: &[u8]) -> Result<(), ModelError> {
        Ok(())
    }
}
