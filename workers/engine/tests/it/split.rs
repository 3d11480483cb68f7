//! One engine computes the prompt, another decodes; the test carries the pages.

use bytes::Bytes;
use cluster_engine::{Config, HandoverError, JobId, JobKind};
use cluster_messages::{Generation, Sampling, TokenOut};
use proptest::prelude::*;

use crate::host::{Answer, BLOCK_TOKENS, Host, caching, generation, prompt, roomy};

/// Reserves in `decode`, computes in `prefill`, carries the pages in the order of `shuffle`, and decodes to the end.
pub(crate) fn ask_split(
    prefill: &mut Host,
    decode: &mut Host,
    id: u64,
    request: &Generation,
    shuffle: usize,
) -> Answer {
    decode.submit(id, request.clone(), JobKind::Decode).unwrap();
    decode.step();
    let (first_page, end_page) = decode.answer(id).reserved.unwrap();
    prefill
        .submit(id, request.clone(), JobKind::Prefill { first_page, end_page })
        .unwrap();
    prefill.run();
    let mut pages = prefill.answer(id).pages.clone();
    assert_eq!(
        pages.iter().map(|(page, _)| *page).collect::<Vec<_>>(),
        (first_page..end_page).collect::<Vec<_>>()
    );
    let middle = shuffle % pages.len();
    pages.rotate_left(middle);
    for (page, bytes) in pages {
        decode.engine.import_page(JobId(id), page, &bytes).unwrap();
        // Others go on meanwhile.
        decode.step();
    }
    let (first, cached_tokens) = prefill.answer(id).first.clone().unwrap();
    decode.engine.start(JobId(id), first, cached_tokens).unwrap();
    decode.engine.check().unwrap();
    decode.run();
    decode.answer(id).clone()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Aggregated = split, with caches on both sides and company in the decode engine.
    #[test]
    fn a_split_changes_no_token(
        lens in prop::collection::vec((0u32..2, 1u32..40, 1u32..30), 1..6), seed: u64, temperature in 0usize..2,
        shuffle in 0usize..20, blocks in 16u32..40, step_tokens in 1u32..30, prefix_cache: bool,
    ) {
        let config = Config { blocks: vec![blocks], step_tokens, prefix_cache, ..roomy() };
        let (mut prefill, mut decode) = (Host::simulated(config.clone()), Host::simulated(config));
        for (id, (family, len, max_tokens)) in lens.into_iter().enumerate() {
            let id = id as u64;
            let request = Generation {
                sampling: Sampling { seed, temperature: [0.0, 1.0][temperature], ..Sampling::default() },
                logprobs: Some(1),
                ..generation(prompt(family, len), max_tokens)
            };
            // In the prefill engine the company is more important and grows, so that prompts are preempted half-way.
            decode.submit(100 + id, generation(prompt(7, 9), 20), JobKind::Whole).unwrap();
            let important = Generation { priority: 1, ..generation(prompt(8, 9), 50) };
            prefill.submit(100 + id, important.clone(), JobKind::Whole).unwrap();
            prefill.submit(200 + id, important, JobKind::Whole).unwrap();
            prefill.step();
            let answer = ask_split(&mut prefill, &mut decode, id, &request, shuffle);
            let expected = Host::simulated(roomy()).ask(id, request);
            prop_assert_eq!(&answer.tokens, &expected.tokens);
            prop_assert_eq!(answer.end.map(|end| end.0), expected.end.map(|end| end.0));
            prop_assert_eq!(answer.usage().completion_tokens, expected.usage().completion_tokens);
        }
        prop_assert_eq!(prefill.engine.load(0).blocks_used + decode.engine.load(0).blocks_used, 0);
    }
}

#[test]
fn a_moved_request_is_split_again_with_its_answer_so_far() {
    let request = generation(prompt(3, 10), 20);
    let expected = Host::simulated(roomy()).ask(0, request.clone());
    let mut moved = request.clone();
    moved.tokens.extend(&expected.ids()[..7]);
    let (mut prefill, mut decode) = (Host::simulated(caching()), Host::simulated(caching()));
    let answer = ask_split(&mut prefill, &mut decode, 0, &moved, 2);
    assert_eq!(answer.ids(), expected.ids()[7..]);
    assert_eq!(answer.usage().completion_tokens, 20);
    assert_eq!(answer.usage().prompt_tokens, 10);
}

#[test]
fn only_missing_pages_are_asked_for_and_the_prefill_worker_counts_what_it_found() {
    let (mut prefill, mut decode) = (Host::simulated(caching()), Host::simulated(caching()));
    let request = generation(prompt(3, 30), 4);
    let cold = ask_split(&mut prefill, &mut decode, 0, &request, 0);
    assert_eq!((cold.reserved, cold.usage().cached_tokens), (Some((0, 8)), 0));
    let warm = ask_split(&mut prefill, &mut decode, 1, &request, 0);
    assert_eq!((warm.reserved, warm.usage().cached_tokens), (Some((7, 8)), 28));
    assert_eq!(warm.tokens, cold.tokens);
    // A decode worker with a cold cache gets pages that the prefill worker has in its own.
    let mut cold_decode = Host::simulated(caching());
    let mixed = ask_split(&mut prefill, &mut cold_decode, 2, &request, 5);
    assert_eq!((mixed.reserved, mixed.usage().cached_tokens), (Some((0, 8)), 28));
    assert_eq!(mixed.tokens, cold.tokens);
    // Pages that came are found later, even where the answer was a single token.
    let short = ask_split(&mut prefill, &mut decode, 3, &generation(prompt(8, 12), 1), 0);
    assert_eq!(short.tokens.len(), 1);
    let again = ask_split(&mut prefill, &mut decode, 4, &generation(prompt(8, 13), 1), 0);
    assert_eq!(again.reserved, Some((3, 4)));
}

#[test]
fn a_preempted_decode_job_recomputes_what_it_was_given() {
    let config = Config {
        blocks: vec![18],
        ..roomy()
    };
    let (mut prefill, mut decode) = (Host::simulated(roomy()), Host::simulated(config));
    let request = generation(prompt(3, 20), 40);
    let important = Generation {
        priority: 1,
        ..generation(prompt(4, 20), 40)
    };
    decode.submit(0, request.clone(), JobKind::Decode).unwrap();
    decode.submit(1, important, JobKind::Whole).unwrap();
    decode.step();
    prefill
        .submit(
            0,
            request.clone(),
            JobKind::Prefill {
                first_page: 0,
                end_page: 5,
            },
        )
        .unwrap();
    prefill.run();
    for (page, bytes) in &prefill.answer(0).pages {
        decode.engine.import_page(JobId(0), *page, bytes).unwrap();
    }
    let (first, cached) = prefill.answer(0).first.clone().unwrap();
    decode.engine.start(JobId(0), first, cached).unwrap();
    decode.run();
    assert!(decode.engine.counters().preemptions > 0);
    assert_eq!(decode.answer(0).tokens, Host::simulated(roomy()).ask(0, request).tokens);
}

#[test]
fn pages_that_were_not_promised_are_refused() {
    let mut decode = Host::simulated(roomy());
    let page = |fill: u8| Bytes::from(vec![fill; BLOCK_TOKENS as usize * 8]);
    let first = TokenOut { id: 5, logprobs: None };
    let job = JobId(0);
    assert_eq!(
        decode.engine.import_page(job, 0, &page(1)),
        Err(HandoverError::UnknownJob { job })
    );
    decode.submit(0, generation(prompt(3, 10), 4), JobKind::Decode).unwrap();
    assert_eq!(
        decode.engine.import_page(job, 0, &page(1)),
        Err(HandoverError::UnknownJob { job }),
        "not reserved yet"
    );
    decode.step();
    assert!(!decode.engine.has_work(), "it waits for pages");
    let outside = HandoverError::Outside {
        page: 3,
        first_page: 0,
        end_page: 3,
    };
    assert_eq!(decode.engine.import_page(job, 3, &page(1)), Err(outside));
    let error = decode.engine.import_page(job, 1, &page(1)[1..]).unwrap_err();
    assert_eq!(error.to_string(), "page of 31 bytes where 32 were expected");
    decode.engine.import_page(job, 1, &page(1)).unwrap();
    assert_eq!(
        decode.engine.import_page(job, 1, &page(1)),
        Err(HandoverError::Twice { page: 1 })
    );
    let missing = HandoverError::Missing {
        missing: 2,
        reserved: 3,
    };
    assert_eq!(decode.engine.start(job, first.clone(), 0), Err(missing));
    assert!(decode.engine.abort(job));
    assert_eq!(
        decode.engine.import_page(job, 2, &page(1)),
        Err(HandoverError::UnknownJob { job })
    );
    assert_eq!(
        decode.engine.start(job, first, 0),
        Err(HandoverError::UnknownJob { job })
    );
    assert_eq!(decode.engine.load(0).blocks_used, 0);
}

#[test]
fn reservations_wait_for_blocks_and_get_them_when_others_go() {
    let mut decode = Host::simulated(Config {
        blocks: vec![16],
        ..roomy()
    });
    for id in 0..3 {
        decode
            .submit(id, generation(prompt(id as u32, 28), 4), JobKind::Decode)
            .unwrap();
    }
    decode.step();
    assert_eq!(
        [0, 1, 2].map(|id| decode.answer(id).reserved.is_some()),
        [true, true, false]
    );
    assert!(!decode.engine.has_work(), "no room for the third");
    let load = decode.engine.load(9);
    assert_eq!(
        (load.running, load.waiting, load.pending_tokens),
        (2, 1, 0),
        "the prompts are computed elsewhere"
    );
    decode.engine.abort(JobId(0));
    assert!(decode.engine.has_work());
    decode.step();
    assert!(decode.answer(2).reserved.is_some());
}
