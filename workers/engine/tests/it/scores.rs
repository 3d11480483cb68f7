//! Log-probabilities of prompts and answers.

use cluster_engine::{Config, JobKind, Simulated, SimulatedConfig};
use cluster_messages::Generation;

use crate::host::{Host, SIMULATED, caching, generation, prompt};

fn scored(tokens: Vec<u32>, max_tokens: u32) -> Generation {
    Generation {
        prompt_logprobs: Some(2),
        logprobs: Some(2),
        ..generation(tokens, max_tokens)
    }
}

#[test]
fn a_cached_prefix_does_not_hide_scores() {
    let mut host = Host::simulated(Config {
        step_tokens: 7,
        ..caching()
    });
    host.ask(0, generation(prompt(1, 30), 1));
    let first = host.ask(1, scored(prompt(1, 30), 0));
    let scores = first.prompt.clone().unwrap();
    assert_eq!(scores.len(), 30);
    assert_eq!(scores.iter().position(Option::is_none), Some(0));
    assert!(scores[1..].iter().all(Option::is_some));
    assert_eq!(
        (
            first.tokens.len(),
            first.usage().completion_tokens,
            first.usage().cached_tokens
        ),
        (0, 0, 0)
    );
    let second = host.ask(2, scored(prompt(1, 30), 0));
    assert_eq!(second.prompt, first.prompt);
}

#[test]
fn the_score_of_a_token_is_the_same_in_prompt_and_answer() {
    let mut host = Host::simulated(caching());
    let answer = host.ask(0, scored(prompt(1, 10), 8));
    let mut tokens = prompt(1, 10);
    tokens.extend(answer.ids());
    let scores = host.ask(1, scored(tokens, 0)).prompt.unwrap();
    let expected: Vec<_> = answer
        .tokens
        .iter()
        .map(|token| token.logprobs.as_deref().cloned())
        .collect();
    assert_eq!(scores[10..], expected);
    // Greedy: the chosen one is the best of the alternatives, with the same value.
    for token in &answer.tokens {
        let scores = token.logprobs.as_ref().unwrap();
        assert_eq!((token.id, scores.chosen), scores.top[0]);
        assert!(scores.top[0].1 > scores.top[1].1 && scores.top.len() == 2);
    }
}

#[test]
fn a_prompt_of_one_token_has_no_score() {
    let mut host = Host::simulated(caching());
    let answer = host.ask(0, scored(vec![3], 2));
    assert_eq!((answer.prompt, answer.tokens.len()), (Some(vec![None]), 2));
}

#[test]
fn scores_survive_a_preemption() {
    let mut host = Host::simulated(Config {
        blocks: vec![20],
        step_tokens: 8,
        ..caching()
    });
    // The first is decoding when the second, less important, is still scoring its prompt.
    host.submit(
        0,
        Generation {
            priority: 1,
            ..generation(prompt(2, 16), 48)
        },
        JobKind::Whole,
    )
    .unwrap();
    host.step();
    host.submit(1, scored(prompt(1, 52), 2), JobKind::Whole).unwrap();
    host.run();
    assert!(host.engine.counters().preemptions > 0);
    let expected = Host::simulated(caching()).ask(1, scored(prompt(1, 52), 2));
    assert_eq!(host.answer(1).prompt, expected.prompt);
    assert_eq!(host.answer(1).tokens, expected.tokens);
}

#[test]
fn a_prefill_worker_scores_for_the_decode_worker() {
    let (mut prefill, mut decode) = (Host::simulated(caching()), Host::simulated(caching()));
    decode.submit(0, scored(prompt(1, 10), 3), JobKind::Decode).unwrap();
    decode.step();
    let (first_page, end_page) = decode.answer(0).reserved.unwrap();
    prefill
        .submit(0, scored(prompt(1, 10), 3), JobKind::Prefill { first_page, end_page })
        .unwrap();
    prefill.run();
    let expected = Host::simulated(caching()).ask(0, scored(prompt(1, 10), 3));
    assert_eq!(prefill.answer(0).prompt, expected.prompt);
    let (first, _) = prefill.answer(0).first.clone().unwrap();
    assert_eq!(first, expected.tokens[0]);
}

#[test]
fn long_prompts_are_scored_in_bounded_steps() {
    let model = Simulated::new(SimulatedConfig {
        context: 400,
        ..SIMULATED
    });
    let mut host = Host::new(
        model,
        Config {
            blocks: vec![200],
            ..caching()
        },
    );
    for id in 0..2 {
        host.submit(id, scored(prompt(id as u32, 200), 0), JobKind::Whole)
            .unwrap();
    }
    let mut steps = 0;
    while host.engine.has_work() {
        host.step();
        steps += 1;
        // A row is as long as the vocabulary: 64 of them are 38 MB for a vocabulary of 150,000.
        assert!(host.last.ran_tokens <= 64);
    }
    assert_eq!(steps, 7);
    assert!((0..2).all(|id| host.answer(id).prompt.as_ref().unwrap().len() == 200));
}
