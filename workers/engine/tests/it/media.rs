//! When rows of media are asked for, what is taken, and what is refused.

use cluster_engine::{Config, HandoverError, JobId, JobKind};
use cluster_messages::{ErrorKind, Generation, Medium};

use crate::host::{Host, WIDTH, caching, generation, medium, prompt, roomy, rows, simulated, windowed};

/// A prompt of `len` tokens with these media.
fn pictured(len: u32, media: Vec<Medium>) -> Generation {
    Generation {
        media,
        ..generation(prompt(1, len), 3)
    }
}

fn host(config: Config) -> Host {
    Host::new(simulated().with_width(WIDTH), config)
}

#[test]
fn a_medium_is_asked_for_once_and_whole_pages_before_it_run_meanwhile() {
    let mut host = host(caching());
    let request = pictured(30, vec![medium(1, 10, 5), medium(2, 20, 4)]);
    host.submit(0, request.clone(), JobKind::Whole).unwrap();
    host.submit(1, generation(prompt(9, 6), 3), JobKind::Whole).unwrap();
    host.step();
    assert_eq!(host.answer(0).features, [[0, 1]]);
    assert_eq!(host.last.ran_tokens, 8 + 6, "two pages before the first picture");
    host.step();
    assert_eq!(host.last.ran_tokens, 1, "the other one decodes");
    (0..3).for_each(|_| host.step());
    assert!(!host.engine.has_work(), "it waits for rows");
    host.engine
        .supply(JobId(0), vec![(1, rows(&request.media[1]))])
        .unwrap();
    assert!(!host.engine.has_work(), "the first ones are missing");
    host.engine
        .supply(JobId(0), vec![(0, rows(&request.media[0]))])
        .unwrap();
    assert!(host.engine.has_work());
    while host.engine.has_work() {
        host.step();
    }
    assert_eq!(host.answer(0).features.len(), 1);
    assert_eq!(host.answer(0).tokens.len(), 3);
}

#[test]
fn what_is_found_is_not_asked_for() {
    let mut host = host(caching());
    let request = pictured(30, vec![medium(1, 2, 5), medium(2, 20, 8)]);
    let cold = host.ask(0, request.clone());
    assert_eq!(cold.features, [[0, 1]]);
    // Pages up to position 28 are found, with both pictures.
    let warm = host.ask(1, request.clone());
    assert_eq!((warm.features.len(), warm.usage().cached_tokens), (0, 28));
    assert_eq!(warm.tokens, cold.tokens);
    // Another second picture: only that one is asked for.
    let mut other = request.clone();
    other.media[1] = medium(3, 20, 8);
    let other_answer = host.ask(2, other);
    assert_eq!(
        (other_answer.features.clone(), other_answer.usage().cached_tokens),
        (vec![vec![1]], 20)
    );
    assert_ne!(other_answer.tokens, cold.tokens);
}

#[test]
fn equal_pictures_give_equal_answers_and_later_ones_find_them() {
    let mut host = host(caching());
    let request = pictured(30, vec![medium(1, 2, 5)]);
    for id in 0..4 {
        host.submit(id, request.clone(), JobKind::Whole).unwrap();
    }
    host.run();
    host.submit(4, request, JobKind::Whole).unwrap();
    host.run();
    assert!(host.answer(4).features.is_empty());
    for id in 1..5 {
        assert_eq!(host.answer(id).tokens, host.answer(0).tokens);
    }
}

#[test]
fn a_preempted_job_asks_again_and_answers_to_its_first_question_do_no_harm() {
    let config = Config {
        blocks: vec![16, 16],
        ..roomy()
    };
    let mut host = Host::new(windowed(6), config);
    let request = pictured(20, vec![medium(1, 3, 9)]);
    let important = Generation {
        priority: 1,
        ..generation(prompt(4, 20), 40)
    };
    let unimportant = Generation {
        max_tokens: 40,
        ..request.clone()
    };
    host.submit(0, unimportant.clone(), JobKind::Whole).unwrap();
    host.submit(1, important, JobKind::Whole).unwrap();
    host.run();
    assert!(host.engine.counters().preemptions > 0);
    assert_eq!(host.answer(0).features, [[0], [0]]);
    let mut alone = Host::new(
        windowed(6),
        Config {
            blocks: vec![64, 64],
            ..roomy()
        },
    );
    assert_eq!(host.answer(0).tokens, alone.ask(0, unimportant).tokens);
    // An answer that comes when nobody waits any more.
    host.submit(2, request.clone(), JobKind::Whole).unwrap();
    host.engine
        .supply(JobId(2), vec![(0, rows(&request.media[0]))])
        .unwrap();
    host.run();
    assert_eq!(host.answer(2).features, [[0]], "it was not asked for before");
}

#[test]
fn rows_of_another_size_are_refused() {
    let mut host = host(roomy());
    let job = JobId(0);
    let none = host.engine.supply(job, Vec::new());
    assert_eq!(none, Err(HandoverError::UnknownJob { job }));
    let request = pictured(20, vec![medium(1, 0, 4)]);
    host.submit(0, request.clone(), JobKind::Whole).unwrap();
    host.step();
    let error = host.engine.supply(job, vec![(0, [0.0; 11].into())]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "medium 0 came with 11 numbers where 12 were expected: 4 rows of 3"
    );
    let error = host
        .engine
        .supply(job, vec![(0, rows(&request.media[0])), (1, rows(&request.media[0]))]);
    assert_eq!(error, Err(HandoverError::UnknownMedium { medium: 1 }));
    assert!(!host.engine.has_work(), "nothing was taken");
    host.run();
    assert_eq!(host.answer(0).tokens.len(), 3);
}

#[test]
fn media_that_cannot_be_are_refused_at_the_door() {
    let mut host = host(roomy());
    let mut refused = |media: Vec<Medium>| host.submit(0, pictured(20, media), JobKind::Whole).unwrap_err().kind;
    for media in [
        vec![medium(1, 3, 0)],
        vec![medium(1, 18, 3)],
        vec![medium(1, u32::MAX, 3)],
        vec![medium(1, 3, 4), medium(2, 6, 2)],
        vec![medium(1, 9, 2), medium(2, 3, 2)],
    ] {
        assert_eq!(refused(media.clone()), ErrorKind::Internal, "{media:?}");
    }
    let mut text_only = Host::simulated(roomy());
    let error = text_only
        .submit(0, pictured(20, vec![medium(1, 3, 4)]), JobKind::Whole)
        .unwrap_err();
    assert_eq!(error.kind, ErrorKind::Invalid);
    assert_eq!(
        error.message,
        "this model takes text only, but the prompt has image content"
    );
}
