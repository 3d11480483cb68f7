//! The prefix cache and the tier below it: what is found, what is counted, what goes first.

use cluster_engine::{Config, JobId, JobKind};
use cluster_messages::{BlockHash, Fingerprint, blocks};

use crate::host::{BLOCK_TOKENS, Host, caching, generation, prompt, roomy, simulated};

fn chain(tokens: &[u32], salt: &str) -> Vec<BlockHash> {
    let fingerprint: Fingerprint = cluster_engine::Model::info(&simulated()).fingerprint;
    blocks::chain(blocks::root(fingerprint, salt), tokens, &[], BLOCK_TOKENS as usize)
}

#[test]
fn cached_tokens_are_whole_blocks_before_the_last_token() {
    for (len, warm) in [(1, 0), (4, 0), (5, 4), (8, 4), (9, 8), (30, 28), (32, 28), (33, 32)] {
        let mut host = Host::simulated(caching());
        let cold = host.ask(0, generation(prompt(1, len), 2));
        assert_eq!((cold.admitted, cold.usage().cached_tokens), (Some(0), 0));
        for id in 1..3 {
            let answer = host.ask(id, generation(prompt(1, len), 2));
            assert_eq!(
                (answer.admitted, answer.usage().cached_tokens),
                (Some(warm), warm),
                "{len} tokens"
            );
            assert_eq!(answer.tokens, cold.tokens);
        }
        assert_eq!(host.engine.counters().cached_tokens, 2 * u64::from(warm));
    }
}

#[test]
fn a_change_in_the_middle_keeps_the_blocks_before_it() {
    let mut host = Host::simulated(caching());
    host.ask(0, generation(prompt(1, 40), 1));
    let mut changed = prompt(1, 40);
    changed[21] += 1;
    assert_eq!(host.ask(1, generation(changed, 1)).usage().cached_tokens, 20);
}

#[test]
fn answers_are_found_by_the_next_turn_and_salts_separate_tenants() {
    let mut host = Host::simulated(caching());
    let first = host.ask(0, generation(prompt(1, 10), 11));
    // 10 tokens of prompt and 11 of answer, of which the last has no KV: 20 positions.
    let mut turn = prompt(1, 10);
    turn.extend(first.ids());
    turn.extend([5, 6]);
    assert_eq!(host.ask(1, generation(turn.clone(), 1)).usage().cached_tokens, 20);
    let mut salted = generation(turn, 1);
    salted.cache_salt = "another".into();
    assert_eq!(host.ask(2, salted).usage().cached_tokens, 0);
}

#[test]
fn without_a_prefix_cache_nothing_is_kept() {
    let mut host = Host::simulated(roomy());
    host.ask(0, generation(prompt(1, 20), 4));
    assert_eq!(host.ask(1, generation(prompt(1, 20), 4)).usage().cached_tokens, 0);
    assert_eq!(host.engine.held(), []);
    assert_eq!(host.engine.load(0).blocks_cached, 0);
}

#[test]
fn equal_prompts_that_come_together_are_computed_once() {
    let mut host = Host::simulated(caching());
    for id in 0..10 {
        host.submit(id, generation(prompt(1, 41), 3), JobKind::Whole).unwrap();
    }
    host.step();
    assert_eq!(host.last.ran_tokens, 41, "the others wait for the pages of the first");
    host.run();
    for id in 0..10 {
        assert_eq!(host.answer(id).tokens, host.answer(0).tokens);
        assert_eq!(host.answer(id).admitted, Some(if id == 0 { 0 } else { 40 }));
    }
    // 41 for the first, 1 for each other, and two more for each answer.
    assert_eq!(host.engine.counters().ran_tokens, 41 + 9 + 10 * 2);
    assert_eq!(host.engine.load(0).blocks_cached, 10);
}

#[test]
fn the_longest_unused_prompt_is_evicted_from_its_end() {
    let mut host = Host::simulated(Config {
        blocks: vec![16],
        tier: false,
        ..caching()
    });
    for id in 0..4 {
        host.ask(id, generation(prompt(id as u32, 16), 1));
    }
    assert_eq!(host.engine.load(0).blocks_cached, 16);
    // Prompt 0 is used again, so prompt 1 is the oldest now.
    host.ask(4, generation(prompt(0, 16), 1));
    host.ask(5, generation(prompt(9, 9), 1));
    let held = host.engine.held();
    let still = |seed| {
        chain(&prompt(seed, 16), "")
            .iter()
            .filter(|hash| held.contains(hash))
            .count()
    };
    assert_eq!([0, 1, 2, 3].map(still), [4, 1, 4, 4]);
    assert!(
        held.contains(&chain(&prompt(1, 16), "")[0]),
        "the beginning of a prompt goes last"
    );
}

/// An engine whose pages go to a tier when they are evicted, with one prompt in that tier.
fn tiered() -> (Host, Vec<u32>) {
    let mut host = Host::simulated(Config {
        blocks: vec![16],
        tier: true,
        ..caching()
    });
    host.submit(0, generation(prompt(1, 30), 3), JobKind::Whole).unwrap();
    host.step();
    assert_eq!(
        host.answer(0).lookup,
        Some(chain(&prompt(1, 30), "")),
        "the tier is asked before anything is computed"
    );
    assert!(!host.engine.has_work());
    host.engine.provide(JobId(0), vec![]).unwrap();
    host.run();
    host.submit(1, generation(prompt(2, 60), 1), JobKind::Whole).unwrap();
    host.step();
    host.engine.provide(JobId(1), vec![]).unwrap();
    host.run();
    let expected = host.answer(0).ids();
    (host, expected)
}

#[test]
fn evicted_pages_come_back_from_a_lower_tier() {
    let (mut host, expected) = tiered();
    let hashes = chain(&prompt(1, 30), "");
    let order: Vec<_> = host
        .evicted_order
        .iter()
        .filter_map(|hash| hashes.iter().position(|h| h == hash))
        .collect();
    assert!(order.is_sorted_by(|a, b| a > b), "evicted from the end: {order:?}");

    host.submit(2, generation(prompt(1, 30), 3), JobKind::Whole).unwrap();
    host.step();
    let asked = host.answer(2).lookup.clone().unwrap();
    let own = hashes.len() - asked.len();
    assert_eq!(asked, hashes[own..]);
    assert_eq!(
        host.answer(2).admitted,
        None,
        "the number of cached tokens is open until the tier has answered"
    );
    let pages: Vec<_> = asked.iter().map(|hash| host.evicted[hash].clone()).collect();
    host.engine.provide(JobId(2), pages).unwrap();
    host.engine.check().unwrap();
    host.run();
    let answer = host.answer(2);
    assert_eq!(
        (answer.ids(), answer.usage().cached_tokens, answer.admitted),
        (expected, 28, Some(28))
    );
}

#[test]
fn a_page_that_does_not_fit_is_a_miss_from_there_on() {
    let (mut host, expected) = tiered();
    host.submit(2, generation(prompt(1, 30), 3), JobKind::Whole).unwrap();
    host.step();
    let asked = host.answer(2).lookup.clone().unwrap();
    let mut pages: Vec<_> = asked.iter().map(|hash| host.evicted[hash].clone()).collect();
    assert!(pages.len() >= 3);
    pages[1] = pages[1].slice(1..);
    host.engine.provide(JobId(2), pages).unwrap();
    host.run();
    let own = chain(&prompt(1, 30), "").len() - asked.len();
    let answer = host.answer(2);
    assert_eq!(answer.ids(), expected);
    assert_eq!(answer.usage().cached_tokens, (own as u32 + 1) * BLOCK_TOKENS);
}

#[test]
fn answers_to_no_question_are_refused() {
    let (mut host, _) = tiered();
    assert!(
        host.engine
            .provide(JobId(0), vec![])
            .unwrap_err()
            .to_string()
            .contains("job 0 is not in the engine")
    );
    host.submit(2, generation(prompt(1, 30), 3), JobKind::Whole).unwrap();
    host.step();
    let asked = host.answer(2).lookup.clone().unwrap().len();
    let many = vec![bytes::Bytes::new(); asked + 1];
    let error = host.engine.provide(JobId(2), many).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("{} pages where {asked} were asked for", asked + 1)
    );
    host.engine.provide(JobId(2), vec![]).unwrap();
    let error = host.engine.provide(JobId(2), vec![]).unwrap_err();
    assert_eq!(error.to_string(), "job 2 does not wait for pages of a lower tier");
}
