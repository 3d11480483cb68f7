//! The promise that other promises rest on: the same request gives the same tokens, whatever happens around it.

use cluster_engine::{Config, JobId, JobKind};
use cluster_messages::{FinishReason, Generation, Penalties, Sampling};
use proptest::prelude::*;

use crate::host::{BLOCK_TOKENS, CONTEXT, Host, VOCABULARY, generation, prompt, roomy};

/// A request of a workload, and the step at which it comes.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    pub(crate) step: u32,
    pub(crate) generation: Generation,
}

fn samplings() -> impl Strategy<Value = Sampling> {
    let cuts =
        (0u32..3, 0usize..3, 0usize..2).prop_map(|(k, p, min_p)| (k * 5, [1.0, 0.9, 0.3][p], [0.0, 0.05][min_p]));
    (any::<u64>(), 0usize..3, cuts, any::<bool>()).prop_map(|(seed, temperature, (top_k, top_p, min_p), penalized)| {
        Sampling {
            temperature: [0.0, 0.7, 1.5][temperature],
            top_k,
            top_p,
            min_p,
            penalties: if penalized {
                Penalties {
                    repetition: 1.3,
                    frequency: 0.5,
                    presence: 0.4,
                }
            } else {
                Penalties::default()
            },
            logit_bias: if penalized {
                vec![(3, 2.5), (8, -100.0)]
            } else {
                Vec::new()
            },
            seed,
        }
    })
}

/// Few distinct beginnings, so that requests share pages; answers that stop, and answers that reach the context.
pub(crate) fn requests() -> impl Strategy<Value = Generation> {
    let shape = (0u32..3, 1u32..40, 0u32..3, 1u32..40);
    let rules = (samplings(), prop::bool::weighted(0.3), 0u32..4, -1i32..2, any::<bool>());
    (shape, rules).prop_map(
        |((family, shared, tail, max_tokens), (sampling, stops, min_tokens, priority, scored))| {
            let mut tokens = prompt(family, shared);
            tokens.extend(prompt(40 + tail, tail));
            Generation {
                sampling,
                min_tokens,
                stop_tokens: if stops { (0..8).collect() } else { Vec::new() },
                logprobs: scored.then_some(2),
                prompt_logprobs: (scored && tail == 0).then_some(1),
                priority,
                ..generation(tokens, max_tokens)
            }
        },
    )
}

pub(crate) fn workloads() -> impl Strategy<Value = Vec<Arrival>> {
    let arrival = (0u32..30, requests()).prop_map(|(step, generation)| Arrival { step, generation });
    prop::collection::vec(arrival, 1..12)
}

/// Tight enough to queue, chunk, evict and preempt; every pool holds one longest sequence.
pub(crate) fn configs() -> impl Strategy<Value = Config> {
    let least = CONTEXT / BLOCK_TOKENS;
    (least..3 * least, 1u32..8, 1u32..48, any::<bool>()).prop_map(|(blocks, running_max, step_tokens, prefix_cache)| {
        Config {
            blocks: vec![blocks],
            running_max,
            step_tokens,
            prefix_cache,
            ..roomy()
        }
    })
}

/// The end of a job without what depends on others: how much was found.
pub(crate) fn essence(host: &Host, id: u64) -> (Vec<u32>, FinishReason, u32) {
    let answer = host.answer(id);
    let (reason, usage) = answer
        .end
        .unwrap_or_else(|| panic!("job {id} has not finished: {answer:?}"));
    (answer.ids(), reason, usage.completion_tokens)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// Alone = batched, whole = chunked, cold = cached, undisturbed = preempted.
    #[test]
    fn company_and_memory_change_no_token(workload in workloads(), config in configs()) {
        let mut host = Host::simulated(config);
        for step in 0..30 {
            for (id, arrival) in workload.iter().enumerate().filter(|(_, arrival)| arrival.step == step) {
                host.submit(id as u64, arrival.generation.clone(), JobKind::Whole).unwrap();
            }
            host.step();
        }
        host.run();
        for (id, arrival) in workload.iter().enumerate() {
            let id = id as u64;
            let mut alone = Host::simulated(roomy());
            let expected = alone.ask(id, arrival.generation.clone());
            prop_assert_eq!(essence(&host, id), essence(&alone, id));
            let answer = host.answer(id);
            prop_assert_eq!(&answer.tokens, &expected.tokens, "log-probabilities");
            prop_assert_eq!(&answer.prompt, &expected.prompt);
            prop_assert_eq!(answer.admitted, Some(answer.usage().cached_tokens));
        }
        prop_assert_eq!(host.engine.load(0).blocks_used, 0);
    }

    /// A request that is cut anywhere and goes on in another engine with the tokens sent so far ends alike.
    #[test]
    fn a_move_changes_no_token(request in requests(), company in workloads(), config in configs(), cut in 1usize..30) {
        let mut alone = Host::simulated(roomy());
        let expected = alone.ask(0, request.clone());

        let mut first = Host::simulated(config.clone());
        first.submit(0, request.clone(), JobKind::Whole).unwrap();
        while first.answer(0).tokens.len() < cut && !first.answer(0).is_over() {
            first.step();
        }
        let mut tokens = first.answer(0).ids();
        if first.engine.abort(JobId(0)) {
            first.engine.check().unwrap();
            let mut moved = request.clone();
            moved.tokens.extend(&tokens);
            moved.prompt_logprobs = None;
            let mut second = Host::simulated(config);
            for (id, arrival) in company.iter().enumerate() {
                second.submit(id as u64 + 1, arrival.generation.clone(), JobKind::Whole).unwrap();
            }
            second.step();
            second.submit(0, moved, JobKind::Whole).unwrap();
            second.run();
            tokens.extend(second.answer(0).ids());
            let (reason, usage) = second.answer(0).end.unwrap();
            let (expected_reason, expected_usage) = expected.end.unwrap();
            prop_assert_eq!(reason, expected_reason);
            prop_assert_eq!(usage.completion_tokens, expected_usage.completion_tokens);
            prop_assert_eq!(usage.prompt_tokens, request.prompt_len);
        }
        prop_assert_eq!(tokens, expected.ids());
        prop_assert!(expected.ids().iter().all(|token| *token < VOCABULARY));
    }
}

/// The random numbers belong to positions in the sequence, so where the prompt ends does not matter to them.
#[test]
fn an_answer_sent_back_as_prompt_goes_on_as_it_did() {
    let request = |tokens, max_tokens| Generation {
        sampling: Sampling {
            seed: 5,
            ..Sampling::default()
        },
        ..generation(tokens, max_tokens)
    };
    let mut host = Host::simulated(roomy());
    let whole = host.ask(0, request(prompt(1, 9), 20)).ids();
    let mut longer = prompt(1, 9);
    longer.extend(&whole[..8]);
    assert_eq!(host.ask(1, request(longer, 12)).ids(), whole[8..]);
}

/// Guards the properties above: their workloads do preempt, evict and find pages.
#[test]
fn a_tight_pool_preempts_and_evicts() {
    let mut host = Host::simulated(Config {
        blocks: vec![18],
        running_max: 6,
        prefix_cache: true,
        ..roomy()
    });
    for id in 0..6 {
        host.submit(u64::from(id), generation(prompt(id, 10), 40), JobKind::Whole)
            .unwrap();
    }
    host.run();
    let counters = host.engine.counters();
    assert!(counters.preemptions > 0, "{counters:?}");
    assert!(counters.evictions > 0, "{counters:?}");
}
