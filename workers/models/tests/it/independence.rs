//! Promise 1 rests on this: the bits of a row depend on its own sequence, and on nothing else.

use cluster_engine::{BlockId, ModelError, Wanted};
use cluster_models::{Options, Ranks, open};
use rstest::rstest;

use crate::{
    fixtures::{exact, load, long_prompt, path, prompts},
    sequences::{Part, Sequences, bits},
};

#[rstest]
fn cutting_a_sequence_changes_no_bit(
    #[values("llama-tiny-gguf", "qwen2-tiny", "qwen3-moe-tiny", "gemma3-tiny", "muse-spark-tiny")] name: &str,
    #[values(exact(), Options::new(2))] options: Options,
) {
    let tokens = long_prompt(name);
    let loaded = load(name, options);
    let run = |pieces: &[usize]| bits(&Sequences::new(loaded.model().unwrap(), 1).run(0, &tokens, pieces));
    let whole = run(&[tokens.len()]);
    assert_eq!(run(&[1]), whole, "token by token");
    assert_eq!(run(&[7, 1, 16, 3, 33]), whole, "odd pieces");
    assert_eq!(run(&[64]), whole, "even pieces");
}

#[rstest]
fn company_changes_no_bit(
    #[values("llama-tiny-gguf", "qwen2-tiny", "qwen3-moe-tiny", "gemma3-tiny", "muse-spark-tiny")] name: &str,
    #[values(exact(), Options::new(2))] options: Options,
) {
    let loaded = load(name, options);
    let prompts = prompts(name);
    let mut alone = Vec::new();
    for tokens in &prompts {
        alone.extend(Sequences::new(loaded.model().unwrap(), 1).run(0, tokens, &[tokens.len()]));
    }
    let parts = |tokens: &[Vec<u32>], from: usize| -> Vec<(u64, usize, Vec<u32>)> {
        let part = |(seq, tokens): (usize, &Vec<u32>)| (seq as u64, from, tokens[from.min(tokens.len())..].to_vec());
        tokens
            .iter()
            .enumerate()
            .map(part)
            .filter(|part| !part.2.is_empty())
            .collect()
    };
    let mut sequences = Sequences::new(loaded.model().unwrap(), prompts.len() as u32);
    let whole = parts(&prompts, 0);
    let whole: Vec<Part<'_>> = whole
        .iter()
        .map(|(seq, start, tokens)| part(*seq, *start, tokens))
        .collect();
    let together: Vec<Vec<f32>> = sequences.step(&whole).into_iter().map(Result::unwrap).collect();
    assert_eq!(bits(&together), bits(&alone));
}

fn part(seq: u64, start: usize, tokens: &[u32]) -> Part<'_> {
    Part {
        seq,
        start,
        tokens,
        wanted: Wanted::All,
    }
}

#[test]
fn decoding_next_to_a_prompt_changes_no_bit() {
    let name = "llama-tiny-gguf";
    let loaded = load(name, Options::new(2));
    let tokens = long_prompt(name);
    let alone = Sequences::new(loaded.model().unwrap(), 1).run(0, &tokens, &[tokens.len()]);

    let mut sequences = Sequences::new(loaded.model().unwrap(), 2);
    sequences.run(0, &tokens[..30], &[30]);
    for next in 30..60 {
        let others = &tokens[2 * next - 60..2 * next - 58];
        let parts = [
            Part {
                wanted: Wanted::None,
                ..part(1, 2 * next - 60, others)
            },
            Part {
                wanted: Wanted::Last,
                ..part(0, next, &tokens[next..=next])
            },
        ];
        let rows: Vec<Vec<f32>> = sequences.step(&parts).into_iter().map(Result::unwrap).collect();
        assert_eq!(bits(&rows), bits(&alone[next..=next]), "token {next}");
    }
}

#[test]
fn wanting_fewer_rows_changes_no_bit() {
    for name in ["llama-tiny-gguf", "gemma3-tiny"] {
        let tokens = long_prompt(name);
        let loaded = load(name, exact());
        let all = Sequences::new(loaded.model().unwrap(), 1).run(0, &tokens, &[tokens.len()]);
        let mut sequences = Sequences::new(loaded.model().unwrap(), 1);
        let first = Part {
            wanted: Wanted::None,
            ..part(0, 0, &tokens[..50])
        };
        assert!(sequences.step(&[first]).is_empty());
        let rest = Part {
            wanted: Wanted::Last,
            ..part(0, 50, &tokens[50..])
        };
        let row = sequences.step(&[rest]).remove(0).unwrap();
        assert_eq!(bits(&[row]), bits(&all[tokens.len() - 1..]));
    }
}

#[test]
fn threads_and_block_size_change_no_bit() {
    for name in ["llama-tiny-gguf", "qwen3-moe-tiny"] {
        let tokens = long_prompt(name);
        let run = |threads, block_tokens| {
            let options = Options {
                block_tokens,
                ..Options::new(threads)
            };
            let loaded = load(name, options);
            (
                loaded.fingerprint(),
                bits(&Sequences::new(loaded.model().unwrap(), 1).run(0, &tokens, &[tokens.len()])),
            )
        };
        let one = run(1, 16);
        assert_eq!(run(2, 16), one);
        assert_eq!(run(3, 64), one);
    }
}

/// Prefill here, decode there: the pages carry everything.
#[rstest]
fn moved_pages_continue_with_the_same_bits(
    #[values("llama-tiny-gguf", "qwen3-moe-tiny", "gemma3-tiny", "muse-spark-tiny")] name: &str,
    #[values(exact(), Options::new(1))] options: Options,
) {
    let tokens = long_prompt(name);
    let (prompt, rest) = tokens.split_at(100);
    let loaded = load(name, options);
    let mut source = Sequences::new(loaded.model().unwrap(), 1);
    source.run(0, prompt, &[100]);
    let expected: Vec<Vec<f32>> = rest
        .iter()
        .enumerate()
        .map(|(index, token)| source.append(0, 100 + index, *token))
        .collect();

    let mut before = Sequences::new(loaded.model().unwrap(), 1);
    before.run(0, prompt, &[100]);
    let mut target = Sequences::new(loaded.factory(Ranks::ONE, 1)().unwrap(), 3);
    for (class, described) in loaded.info().classes.iter().enumerate() {
        let moves = before.table(0, class).into_iter().zip(target.table(2, class));
        for (from, to) in moves.take(100_usize.div_ceil(described.block_tokens as usize)) {
            let mut bytes = Vec::new();
            before.model.export(class, from, &mut bytes);
            assert_eq!(bytes.len(), described.block_bytes);
            target.model.import(class, to, &bytes).unwrap();
        }
    }
    let continued: Vec<Vec<f32>> = rest
        .iter()
        .enumerate()
        .map(|(index, token)| target.append(2, 100 + index, *token))
        .collect();
    assert_eq!(bits(&continued), bits(&expected));
}

#[test]
fn a_page_of_the_wrong_size_is_refused() {
    let loaded = load("llama-tiny", exact());
    let mut sequences = Sequences::new(loaded.model().unwrap(), 1);
    let error = sequences.model.import(0, BlockId(0), &[0; 10]).unwrap_err();
    let expected = loaded.info().classes[0].block_bytes;
    assert_eq!(error, ModelError::PageSize { expected, got: 10 });
}

#[test]
fn a_sequence_with_an_unknown_token_fails_alone() {
    let loaded = load("llama-tiny", exact());
    let mut sequences = Sequences::new(loaded.model().unwrap(), 3);
    let alone = sequences.run(0, &[5, 6, 7], &[3]);
    let bad = Part {
        wanted: Wanted::None,
        ..part(1, 0, &[1, 320, 2])
    };
    let rows = sequences.step(&[bad, part(2, 0, &[5, 6, 7])]);
    let rows: Vec<Vec<f32>> = rows.into_iter().map(Result::unwrap).collect();
    assert_eq!(bits(&rows), bits(&alone));

    let rows = sequences.step(&[part(1, 3, &[4]), part(2, 3, &[8])]);
    assert_eq!(
        rows[0].as_ref().unwrap_err(),
        "token 320 is not in the vocabulary of 320"
    );
    assert!(rows[1].is_ok());
}

#[test]
fn a_sequence_beyond_the_context_fails() {
    let options = Options {
        context_max: Some(40),
        ..exact()
    };
    let loaded = open(&path("llama-tiny"), options).unwrap();
    assert_eq!(loaded.info().context, 40);
    let mut sequences = Sequences::new(loaded.model().unwrap(), 1);
    assert!(sequences.step(&[part(0, 0, &[1; 40])]).iter().all(Result::is_ok));
    let rows = sequences.step(&[part(0, 40, &[1])]);
    assert_eq!(rows[0].as_ref().unwrap_err(), "position 40 is beyond the context of 40");
}

/// Two instances of one worker's weights step at the same time.
#[test]
fn instances_do_not_disturb_each_other() {
    let name = "llama-tiny-gguf";
    let tokens = long_prompt(name);
    let loaded = load(name, Options::new(2));
    let run = || bits(&Sequences::new(loaded.model().unwrap(), 1).run(0, &tokens, &[5]));
    let expected = run();
    std::thread::scope(|scope| {
        let others: Vec<_> = (0..3).map(|_| scope.spawn(run)).collect();
        for other in others {
            assert_eq!(other.join().unwrap(), expected);
        }
    });
}
