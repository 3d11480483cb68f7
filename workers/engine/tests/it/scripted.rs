//! The scripted model behind the engine.

use cluster_engine::{Config, JobId, JobKind, Script, Scripted, ScriptedConfig, Stall, Then};
use cluster_messages::{ErrorKind, FinishReason, Generation};

use crate::host::{BLOCK_TOKENS, Host, caching, generation, prompt};

const EOS: u32 = 1;

fn script(emit: &[u32]) -> Script {
    Script {
        emit: emit.to_vec(),
        tokens_per_step: 1,
        then: Then::Eos,
        stalls: Vec::new(),
    }
}

fn model(scripts: Vec<Script>) -> Scripted {
    Scripted::new(ScriptedConfig {
        scripts,
        eos: EOS,
        vocabulary: 97,
        context: 64,
        block_tokens: BLOCK_TOKENS,
        step_us: 0,
    })
    .unwrap()
}

fn host(scripts: Vec<Script>) -> Host {
    Host::new(model(scripts), caching())
}

fn request(tokens: Vec<u32>) -> Generation {
    Generation {
        stop_tokens: vec![EOS],
        ..generation(tokens, 40)
    }
}

#[test]
fn scripts_are_handed_out_in_turn() {
    let mut host = host(vec![script(&[10, 11, 12]), script(&[20])]);
    let first = host.ask(0, request(prompt(1, 9)));
    assert_eq!(
        (first.ids(), first.end.unwrap().0),
        (vec![10, 11, 12, EOS], FinishReason::Stop)
    );
    assert_eq!(host.ask(1, request(prompt(1, 9))).ids(), [20, EOS]);
    assert_eq!(host.ask(2, request(prompt(1, 9))).ids(), [10, 11, 12, EOS]);
}

#[test]
fn scripts_end_as_they_say() {
    let limit = Script {
        then: Then::Limit,
        ..script(&[10, 11])
    };
    let error = Script {
        then: Then::Error,
        ..script(&[20, 21])
    };
    let mut host = host(vec![limit, error, script(&[])]);
    let answer = host.ask(0, request(prompt(1, 5)));
    assert_eq!(
        (answer.ids(), answer.end.unwrap().0),
        (vec![10, 11], FinishReason::Length)
    );
    assert_eq!(answer.usage().completion_tokens, 2);
    let answer = host.ask(1, request(prompt(1, 5)));
    assert_eq!((answer.ids(), answer.end), (vec![20, 21], None));
    assert_eq!(answer.error.unwrap().kind, ErrorKind::Internal);
    assert_eq!(host.ask(2, request(prompt(1, 5))).ids(), [EOS]);
    assert_eq!(host.engine.load(0).blocks_used, 0);
}

#[test]
fn several_tokens_arrive_in_one_step_and_limits_cut_them() {
    let emit: Vec<u32> = (10..20).collect();
    let by_four = Script {
        tokens_per_step: 4,
        ..script(&emit)
    };
    let mut host = host(vec![by_four]);
    host.submit(0, request(prompt(1, 5)), JobKind::Whole).unwrap();
    let mut lens = Vec::new();
    while !host.answer(0).is_over() {
        host.step();
        lens.push(host.answer(0).tokens.len());
    }
    assert_eq!(lens, [4, 8, 11], "the end token comes with the last two");
    let short = host.ask(
        1,
        Generation {
            max_tokens: 6,
            ..request(prompt(1, 5))
        },
    );
    assert_eq!(
        (short.ids(), short.end.unwrap().0),
        (vec![10, 11, 12, 13, 14, 15], FinishReason::Length)
    );
    let stopped = host.ask(
        2,
        Generation {
            stop_tokens: vec![12],
            ..request(prompt(1, 5))
        },
    );
    assert_eq!(
        (stopped.ids(), stopped.end.unwrap().0),
        (vec![10, 11, 12], FinishReason::Stop)
    );
}

#[test]
fn stalls_are_steps_without_tokens() {
    let stalls = vec![Stall { after: 0, steps: 2 }, Stall { after: 3, steps: 3 }];
    let mut host = host(vec![Script {
        stalls,
        tokens_per_step: 2,
        ..script(&[10, 11, 12, 13])
    }]);
    // A prompt that fills its blocks, so that a stall falls on a page boundary.
    host.submit(0, request(prompt(1, 8)), JobKind::Whole).unwrap();
    let mut lens = Vec::new();
    while !host.answer(0).is_over() {
        host.step();
        lens.push(host.answer(0).tokens.len());
    }
    assert_eq!(lens, [0, 0, 2, 3, 3, 3, 3, 5]);
    assert_eq!(host.answer(0).ids(), [10, 11, 12, 13, EOS]);
}

#[test]
fn a_script_survives_preemption() {
    let emit: Vec<u32> = (10..40).collect();
    let mut host = Host::new(
        model(vec![script(&emit)]),
        Config {
            blocks: vec![16],
            ..caching()
        },
    );
    for id in 0..4 {
        host.submit(id, request(prompt(id as u32, 13)), JobKind::Whole).unwrap();
    }
    host.run();
    assert!(host.engine.counters().preemptions > 0);
    for id in 0..4 {
        assert_eq!(host.answer(id).ids(), [&emit[..], &[EOS]].concat());
    }
}

#[test]
fn a_script_survives_a_move_and_a_split() {
    let scripts = || vec![script(&[50, 51]), script(&[10, 11, 12, 13, 14])];
    let mut first = host(scripts());
    first.ask(0, request(prompt(1, 6)));
    first.submit(1, request(prompt(2, 6)), JobKind::Whole).unwrap();
    (0..3).for_each(|_| first.step());
    assert_eq!(first.answer(1).ids(), [10, 11, 12]);
    first.engine.abort(JobId(1));
    let mut moved = request(prompt(2, 6));
    moved.tokens.extend([10, 11, 12]);
    assert_eq!(host(scripts()).ask(1, moved).ids(), [13, 14, EOS]);

    let (mut prefill, mut decode) = (host(scripts()), host(scripts()));
    decode.submit(0, request(prompt(2, 6)), JobKind::Decode).unwrap();
    decode.step();
    prefill
        .submit(
            0,
            request(prompt(2, 6)),
            JobKind::Prefill {
                first_page: 0,
                end_page: 2,
            },
        )
        .unwrap();
    prefill.run();
    for (page, bytes) in &prefill.answer(0).pages {
        decode.engine.import_page(JobId(0), *page, bytes).unwrap();
    }
    let (token, cached_tokens) = prefill.answer(0).first.clone().unwrap();
    decode.engine.start(JobId(0), token, cached_tokens).unwrap();
    decode.run();
    assert_eq!(decode.answer(0).ids(), [50, 51, EOS]);
}

#[test]
fn a_scored_prompt_does_not_use_up_the_script() {
    let mut host = Host::new(
        model(vec![script(&[10, 11])]),
        Config {
            step_tokens: 4,
            ..caching()
        },
    );
    let answer = host.ask(
        0,
        Generation {
            prompt_logprobs: Some(1),
            logprobs: Some(1),
            ..request(prompt(1, 30))
        },
    );
    assert_eq!(answer.ids(), [10, 11, EOS]);
    assert_eq!(answer.prompt.unwrap().len(), 30);
    let scores = answer.tokens[0].logprobs.clone().unwrap();
    assert_eq!(
        (scores.chosen, scores.top),
        (0.0, vec![(10, 0.0)]),
        "it is certain of its tokens"
    );
}

#[test]
fn scripts_are_read_from_files_and_checked() {
    let text = r#"{"scripts": [{"emit": [10, 11], "then": "limit"}, {"emit": [3], "stalls": [{"after": 0, "steps": 2}]}],
        "eos": 1, "vocabulary": 97, "context": 64, "block_tokens": 4}"#;
    let config: ScriptedConfig = serde_json::from_str(text).unwrap();
    assert_eq!(
        config.scripts[0],
        Script {
            then: Then::Limit,
            ..script(&[10, 11])
        }
    );
    assert_eq!((config.scripts[1].tokens_per_step, config.step_us), (1, 0));
    assert!(serde_json::from_str::<Script>(r#"{"emit": [1], "than": "eos"}"#).is_err());
    let error = |change: &dyn Fn(&mut ScriptedConfig)| {
        let mut config = config.clone();
        change(&mut config);
        Scripted::new(config).unwrap_err().to_string()
    };
    assert_eq!(
        error(&|config| config.scripts.clear()),
        "there is no script; give at least one"
    );
    assert_eq!(
        error(&|config| config.eos = 97),
        "token id 97 is outside the vocabulary of 97 tokens"
    );
    let slow = error(&|config| config.scripts[1].tokens_per_step = 0);
    assert_eq!(slow, "script 1: tokens_per_step is 0; it must be at least 1");
}
