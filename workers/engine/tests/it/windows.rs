//! Models with a window class and with media: the same tokens whatever happens, from no more memory than is read.

use cluster_engine::{Config, Engine, HandoverError, JobId, JobKind};
use cluster_messages::{Generation, Medium};
use proptest::prelude::*;

use crate::{
    equality::{configs, essence, requests, workloads},
    host::{BLOCK_TOKENS, CONTEXT, Host, caching, generation, medium, prompt, roomy, windowed},
};

/// Blocks for one sequence that reads `window` positions.
fn least(window: u32) -> u32 {
    ((window - 1).div_ceil(BLOCK_TOKENS) + 1).min(CONTEXT / BLOCK_TOKENS)
}

/// Windows of any size, and one that never ends: a second full class is kept like that.
fn windows() -> impl Strategy<Value = u32> {
    prop_oneof![8 => 1u32..24, 1 => Just(10 * CONTEXT)]
}

fn roomy_windowed() -> Config {
    Config {
        blocks: vec![64, 64],
        ..roomy()
    }
}

/// Few distinct media, so that prompts share pages with them.
fn spans() -> impl Strategy<Value = Vec<(u128, u32, u32)>> {
    prop::collection::vec((0u128..2, 0u32..7, 1u32..9), 0..3)
}

/// Puts media into a prompt, as many as there is room for: each a gap behind the one before.
fn with_media(generation: Generation, spans: &[(u128, u32, u32)]) -> Generation {
    let mut media: Vec<Medium> = Vec::new();
    for (name, gap, tokens) in spans {
        let first = media.last().map_or(0, Medium::end) + gap;
        if first + tokens <= generation.prompt_len {
            media.push(medium(*name, first, *tokens));
        }
    }
    Generation { media, ..generation }
}

fn alone(window: u32, request: &Generation) -> (Host, crate::host::Answer) {
    let mut host = Host::new(windowed(window), roomy_windowed());
    let answer = host.ask(0, request.clone());
    (host, answer)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Alone = batched, whole = chunked, cold = cached, undisturbed = preempted; with windows of any size, scarce window
    /// blocks, pages that lost theirs, a tier below, and media that chunks cut anywhere.
    #[test]
    fn company_and_memory_change_no_token(
        workload in workloads(), spans in prop::collection::vec(spans(), 12), config in configs(), window in windows(),
        spare in 0u32..24, tier: bool, delay in 1u32..5,
    ) {
        let blocks = vec![config.blocks[0], least(window) + spare];
        let tier = tier && config.prefix_cache;
        let mut host = Host::new(windowed(window), Config { blocks, tier, ..config });
        host.is_tier = tier;
        let arrivals = workload.iter().zip(&spans);
        let requests: Vec<Generation> = arrivals.map(|(arrival, spans)| with_media(arrival.generation.clone(), spans)).collect();
        for step in 0..30 {
            for id in (0..workload.len()).filter(|id| workload[*id].step == step) {
                host.submit(id as u64, requests[id].clone(), JobKind::Whole).unwrap();
            }
            host.step();
            if step % delay == 0 {
                host.serve();
            }
        }
        host.run();
        for (id, request) in requests.iter().enumerate() {
            let id = id as u64;
            let (alone, expected) = alone(window, request);
            prop_assert_eq!(essence(&host, id), essence(&alone, 0));
            let answer = host.answer(id);
            prop_assert_eq!(&answer.tokens, &expected.tokens, "log-probabilities");
            prop_assert_eq!(&answer.prompt, &expected.prompt);
            prop_assert_eq!(answer.admitted, Some(answer.usage().cached_tokens));
        }
        prop_assert_eq!(host.engine.load(0).blocks_used, 0);
    }

    /// A request that goes on in another engine with the tokens sent so far ends alike, media and all.
    #[test]
    fn a_move_changes_no_token(
        request in requests(), spans in spans(), company in workloads(), config in configs(), window in windows(),
        spare in 0u32..24, cut in 0usize..30,
    ) {
        let request = with_media(request, &spans);
        let (_, expected) = alone(window, &request);
        let cut = cut.min(expected.tokens.len() - 1);
        let blocks = vec![config.blocks[0], least(window) + spare];
        let mut host = Host::new(windowed(window), Config { blocks, ..config });
        for (id, arrival) in (1..).zip(company) {
            host.submit(id, arrival.generation, JobKind::Whole).unwrap();
        }
        host.step();
        let mut moved = Generation { prompt_logprobs: None, ..request };
        moved.tokens.extend(&expected.ids()[..cut]);
        let answer = host.ask(0, moved);
        prop_assert_eq!(answer.ids(), &expected.ids()[cut..]);
        prop_assert_eq!(answer.usage().completion_tokens, expected.usage().completion_tokens);
    }

    /// Aggregated = split: only the last window's blocks travel, and the decode worker finds pages of its own.
    #[test]
    fn a_split_changes_no_token(
        asked in prop::collection::vec((requests(), spans()), 1..6), window in windows(), spare in 0u32..24,
        blocks in 16u32..40, step_tokens in 1u32..30, prefix_cache: bool, shuffle in 0usize..20,
    ) {
        let config = Config {
            blocks: vec![blocks, 2 * least(window) + spare],
            step_tokens,
            prefix_cache,
            ..roomy()
        };
        let mut prefill = Host::new(windowed(window), config.clone());
        let mut decode = Host::new(windowed(window), config);
        for (id, (request, spans)) in asked.into_iter().enumerate() {
            let id = id as u64;
            let request = Generation { prompt_logprobs: None, ..with_media(request, &spans) };
            decode.submit(100 + id, generation(prompt(7, 9), 20), JobKind::Whole).unwrap();
            prefill.submit(100 + id, Generation { priority: 5, ..generation(prompt(8, 9), 50) }, JobKind::Whole).unwrap();
            prefill.step();
            let answer = crate::split::ask_split(&mut prefill, &mut decode, id, &request, shuffle);
            let (_, expected) = alone(window, &request);
            prop_assert_eq!(&answer.tokens, &expected.tokens);
            prop_assert_eq!(answer.end.map(|end| end.0), expected.end.map(|end| end.0));
        }
        prop_assert_eq!(prefill.engine.load(0).blocks_used + decode.engine.load(0).blocks_used, 0);
    }
}

/// Guards the properties above: their kind of workload does lose window blocks of pages that stay.
#[test]
fn a_long_prompt_needs_no_more_window_blocks_than_it_reads() {
    let config = Config {
        blocks: vec![64, least(8)],
        step_tokens: 8,
        ..caching()
    };
    let mut host = Host::new(windowed(8), config);
    let answer = host.ask(0, generation(prompt(1, 50), 10));
    assert_eq!(answer.tokens, alone(8, &generation(prompt(1, 50), 10)).1.tokens);
    assert_eq!(host.engine.held().len(), 14, "all pages stay in the tree");
    assert_eq!(host.engine.counters().preemptions, 0);
}

#[test]
fn a_prefix_is_used_as_far_as_its_window_is_there() {
    // Room for one sequence's window and two blocks.
    let config = Config {
        blocks: vec![64, least(8) + 2],
        ..caching()
    };
    let mut host = Host::new(windowed(8), config);
    host.ask(0, generation(prompt(1, 40), 1));
    // The end of the prompt has its window: 36 positions are found.
    let again = host.ask(1, generation(prompt(1, 40), 3));
    assert_eq!(again.usage().cached_tokens, 36);
    // The middle lost its window blocks, though all its pages are there.
    let mut other = prompt(1, 21);
    other.extend(prompt(2, 5));
    let request = generation(other, 3);
    let parted = host.ask(2, request.clone());
    assert_eq!(parted.usage().cached_tokens, 0);
    assert_eq!(parted.tokens, alone(8, &request).1.tokens);
    assert_eq!(host.engine.held().len(), 9 + 1 + 2);
}

#[test]
fn where_prompts_part_window_blocks_are_kept_longest() {
    let config = Config {
        blocks: vec![64, least(8) + 6],
        step_tokens: 8,
        ..caching()
    };
    let mut host = Host::new(windowed(8), config);
    let with_tail = |seed| {
        let mut tokens = prompt(1, 20);
        tokens.extend(prompt(seed, 20));
        generation(tokens, 1)
    };
    let cached: Vec<u32> = (2..6)
        .map(|seed| host.ask(seed.into(), with_tail(seed)).usage().cached_tokens)
        .collect();
    // The second prompt shows where they part; the later ones go on from there.
    assert_eq!(cached[2..], [20, 20]);
}

#[test]
fn only_the_last_window_travels() {
    let mut prefill = Host::new(windowed(8), roomy_windowed());
    let kind = JobKind::Prefill {
        first_page: 0,
        end_page: 5,
    };
    prefill.submit(0, generation(prompt(1, 18), 4), kind).unwrap();
    prefill.run();
    // From position 18 on, positions 11..18 are read: pages 2, 3 and 4.
    let lens: Vec<usize> = prefill.answer(0).pages.iter().map(|(_, bytes)| bytes.len()).collect();
    assert_eq!(lens, [33, 33, 65, 65, 65]);
    let mut decode = Host::new(windowed(8), roomy_windowed());
    decode.submit(0, generation(prompt(1, 18), 4), JobKind::Decode).unwrap();
    decode.step();
    let pages = prefill.answer(0).pages.clone();
    let error = decode.engine.import_page(JobId(0), 0, &pages[2].1).unwrap_err();
    assert_eq!(error.to_string(), "page of 65 bytes where 33 were expected");
    let mut unlike = pages[0].1.to_vec();
    unlike[0] = 0b10;
    let error = decode.engine.import_page(JobId(0), 0, &unlike).unwrap_err();
    assert_eq!(error, HandoverError::Classes { page: 0 });
    for (page, bytes) in pages {
        decode.engine.import_page(JobId(0), page, &bytes).unwrap();
    }
}

#[test]
fn pages_come_back_from_a_tier_as_far_as_a_window_behind_their_end_came_too() {
    let config = Config {
        blocks: vec![16, least(8) + 2],
        tier: true,
        ..caching()
    };
    let mut host = Host::new(windowed(8), config);
    host.is_tier = true;
    let request = generation(prompt(1, 30), 3);
    let cold = host.ask(0, request.clone());
    host.ask(1, generation(prompt(2, 60), 1));
    let page_lens: Vec<usize> = host.evicted.values().map(|bytes| bytes.len()).collect();
    assert!(page_lens.contains(&33) && page_lens.contains(&65), "{page_lens:?}");
    // The end of the prompt was evicted with its window.
    let warm = host.ask(2, request.clone());
    assert_eq!(
        (warm.tokens.clone(), warm.usage().cached_tokens),
        (cold.tokens.clone(), 28)
    );

    // The pages before it were not: without the end they are of no use.
    host.ask(3, generation(prompt(2, 60), 1));
    host.is_tier = false;
    host.submit(4, request, JobKind::Whole).unwrap();
    host.step();
    let asked = host.answer(4).lookup.clone().unwrap();
    assert_eq!(asked.len(), 7);
    let pages = asked[..4].iter().map(|hash| host.evicted[hash].clone()).collect();
    host.engine.provide(JobId(4), pages).unwrap();
    host.run();
    let answer = host.answer(4);
    assert_eq!((answer.tokens.clone(), answer.usage().cached_tokens), (cold.tokens, 0));
}

#[test]
fn load_tells_of_the_fullest_class() {
    let config = Config {
        blocks: vec![64, 4],
        ..caching()
    };
    let mut host = Host::new(windowed(8), config);
    host.submit(0, generation(prompt(1, 12), 9), JobKind::Whole).unwrap();
    host.step();
    let load = host.engine.load(0);
    // Three pages of 64, but two window blocks of four.
    assert_eq!((load.blocks_used, load.blocks_total), (32, 64));
    host.run();
    let load = host.engine.load(0);
    assert_eq!((load.blocks_used, load.blocks_cached), (0, 5));
}

#[test]
fn a_window_without_room_for_one_sequence_is_refused() {
    let build = |blocks: Vec<u32>| {
        let config = Config { blocks, ..roomy() };
        Engine::new(Box::new(windowed(9)), config)
            .map(|_| ())
            .map_err(|error| error.to_string())
    };
    let too_small = "KV class 1 has 2 blocks; Window { tokens: 9 } needs 3 for one sequence of 64 tokens";
    assert_eq!(build(vec![64, 2]), Err(too_small.into()));
    assert_eq!(build(vec![64, 3]), Ok(()));
    // Two pages are the whole context.
    assert_eq!(build(vec![2, 2]), Ok(()));
}
