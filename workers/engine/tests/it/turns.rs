//! Whose turn it is: decodes first, prompts in chunks beside them, priority before arrival, nobody for ever last.

use cluster_engine::{Config, JobKind};
use cluster_messages::Generation;

use crate::host::{Host, caching, generation, prompt, roomy};

#[test]
fn a_long_prompt_is_cut_so_that_decodes_go_on() {
    let mut host = Host::simulated(Config {
        step_tokens: 10,
        ..roomy()
    });
    host.submit(0, generation(prompt(1, 4), 20), JobKind::Whole).unwrap();
    host.step();
    host.submit(1, generation(prompt(2, 40), 2), JobKind::Whole).unwrap();
    let mut chunks = Vec::new();
    while host.answer(1).tokens.is_empty() {
        let before = host.answer(0).tokens.len();
        host.step();
        assert_eq!(
            host.answer(0).tokens.len(),
            before + 1,
            "the decode gets a token in every step"
        );
        assert!(host.last.ran_tokens <= 10);
        chunks.push(host.last.prefill_tokens);
    }
    // One of ten is the decode; chunks end on pages of four.
    assert_eq!(chunks, [8, 8, 8, 8, 8]);
}

#[test]
fn prompts_move_even_where_decodes_use_up_the_budget() {
    let mut host = Host::simulated(Config {
        step_tokens: 2,
        ..roomy()
    });
    for id in 0..3 {
        host.submit(id, generation(prompt(1, 4), 50), JobKind::Whole).unwrap();
    }
    while host.answer(2).tokens.is_empty() {
        host.step();
    }
    host.submit(3, generation(prompt(2, 8), 1), JobKind::Whole).unwrap();
    (0..4).for_each(|_| host.step());
    assert!(host.answer(3).is_over());
    assert!(!host.answer(0).is_over());
}

#[test]
fn higher_priority_is_admitted_first_then_the_earlier_one() {
    let mut host = Host::simulated(Config {
        running_max: 1,
        ..roomy()
    });
    for (id, priority) in [(0, 0), (1, 0), (2, 5), (3, -1), (4, 5)] {
        host.submit(
            id,
            Generation {
                priority,
                ..generation(prompt(1, 4), 1)
            },
            JobKind::Whole,
        )
        .unwrap();
    }
    let mut order = Vec::new();
    for _ in 0..5 {
        host.step();
        order.extend(
            (0..5)
                .filter(|id| host.answer(*id).is_over() && !order.contains(id))
                .collect::<Vec<_>>(),
        );
    }
    assert_eq!(order, [2, 4, 0, 1, 3]);
}

#[test]
fn the_youngest_of_the_lowest_priority_loses_its_blocks() {
    let mut host = Host::simulated(Config {
        blocks: vec![16],
        ..roomy()
    });
    for (id, priority) in [(0, 1), (1, 0), (2, 0), (3, 1)] {
        host.submit(
            id,
            Generation {
                priority,
                ..generation(prompt(id as u32, 15), 30)
            },
            JobKind::Whole,
        )
        .unwrap();
    }
    while host.engine.counters().preemptions == 0 {
        host.step();
    }
    let load = host.engine.load(100);
    assert_eq!((load.running, load.waiting), (3, 1));
    let said = [0, 1, 2, 3].map(|id| host.answer(id).tokens.len());
    host.step();
    assert_eq!(host.answer(2).tokens.len(), said[2], "it was number 2");
    assert!(
        [0, 1, 3]
            .iter()
            .all(|id| host.answer(*id).tokens.len() > said[*id as usize])
    );
    host.run();
    for id in 0..4u32 {
        let undisturbed = Host::simulated(roomy()).ask(0, generation(prompt(id, 15), 30));
        assert_eq!(
            host.answer(id.into()).tokens,
            undisturbed.tokens,
            "nothing is said twice"
        );
    }
}

#[test]
fn a_big_prompt_is_not_overtaken_for_ever() {
    let mut host = Host::simulated(Config {
        blocks: vec![16],
        waiting_max: 500,
        ..caching()
    });
    host.submit(0, generation(prompt(0, 8), 8), JobKind::Whole).unwrap();
    host.step();
    host.submit(1, generation(prompt(1, 60), 2), JobKind::Whole).unwrap();
    let mut next = 2;
    // Small requests keep coming; each alone would fit.
    while !host.answer(1).is_over() {
        host.submit(next, generation(prompt(next as u32, 8), 8), JobKind::Whole)
            .unwrap();
        next += 1;
        host.step();
        assert!(next < 60, "the big prompt starves");
    }
}

#[test]
fn load_tells_what_waits_and_for_how_long() {
    let mut host = Host::simulated(Config {
        running_max: 1,
        step_tokens: 8,
        ..caching()
    });
    assert!(!host.engine.has_work());
    host.step();
    assert!(host.last.is_idle());
    host.submit(0, generation(prompt(1, 20), 4), JobKind::Whole).unwrap();
    host.submit(1, generation(prompt(2, 10), 4), JobKind::Whole).unwrap();
    assert!(host.engine.has_work());
    host.step();
    let load = host.engine.load(1001);
    assert_eq!((load.running, load.waiting, load.pending_tokens), (1, 1, 12 + 10));
    assert_eq!((load.blocks_used, load.blocks_cached, load.blocks_total), (5, 0, 64));
    assert_eq!((load.steps, load.oldest_waiting_ms), (1, 1000));
    host.run();
    let load = host.engine.load(2000);
    assert_eq!(
        (load.running, load.waiting, load.pending_tokens, load.oldest_waiting_ms),
        (0, 0, 0, 0)
    );
    assert_eq!((load.blocks_used, load.blocks_cached), (0, 5 + 3));
}

#[test]
fn a_prompt_is_admitted_only_with_room_for_its_first_token() {
    let mut host = Host::simulated(Config {
        blocks: vec![16],
        ..roomy()
    });
    host.submit(0, generation(prompt(0, 31), 2), JobKind::Whole).unwrap();
    // Exactly the eight blocks that are left, and none for what comes next.
    host.submit(1, generation(prompt(1, 32), 2), JobKind::Whole).unwrap();
    host.step();
    assert_eq!((host.engine.load(0).running, host.engine.load(0).waiting), (1, 1));
    host.run();
    assert_eq!(host.engine.counters().preemptions, 0);
    assert_eq!(host.answer(1).tokens.len(), 2);
}
