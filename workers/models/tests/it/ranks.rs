//! Ranks: however a model is divided, it says the same, and pages fit every way of dividing it.

use cluster_engine::{BlockId, Model, Wanted};
use cluster_models::{KvDType, Options, Ranks, open};
use rstest::rstest;

use crate::{
    fixtures::{exact, goldens, load, long_prompt, path},
    muse::{TEXTS, assert_matches, recorded},
    sequences::{Part, Sequences, arg_max, bits, largest_difference},
};

const fn ranks(tensor: usize, expert: usize, sequence: usize) -> Ranks {
    Ranks {
        tensor,
        expert,
        sequence,
    }
}

fn divided(name: &str, ranks: Ranks) -> Box<dyn Model> {
    load(name, exact()).factory(ranks, 1)().unwrap()
}

/// Heads are 8 over 2, experts 8, the inner widths 48 and 192: three and sixteen divide some of them unevenly or not at all.
#[rstest]
#[case(ranks(2, 1, 1))]
#[case(ranks(3, 1, 1))]
#[case(ranks(4, 1, 1))]
#[case(ranks(16, 1, 1))]
#[case(ranks(2, 2, 1))]
#[case(ranks(3, 3, 1))]
#[case(ranks(4, 4, 1))]
#[case(ranks(16, 16, 1))]
#[case(ranks(3, 3, 3))]
#[case(ranks(4, 4, 4))]
fn texts_and_media_match_however_a_model_is_divided(#[case] ranks: Ranks) {
    let factory = load("muse-spark-tiny", exact()).factory(ranks, 1);
    for name in TEXTS {
        let mut sequences = Sequences::new(factory().unwrap(), 1);
        assert_matches(&mut sequences, &recorded(name, None), &[1000], name);
    }
    let mut sequences = Sequences::new(factory().unwrap(), 1);
    assert_matches(&mut sequences, &recorded("image", Some(1409)), &[10], "image");
}

#[rstest]
#[case("llama-tiny")]
#[case("llama-tiny-gguf")]
#[case("qwen2-tiny")]
#[case("qwen3-tiny")]
#[case("qwen3-moe-tiny")]
#[case("gemma3-tiny")]
fn other_families_can_be_divided(#[case] name: &str, #[values(ranks(2, 1, 1), ranks(2, 2, 2))] ranks: Ranks) {
    let golden = goldens(name).pop().unwrap();
    let mut sequences = Sequences::new(divided(name, ranks), 1);
    let rows = sequences.run(0, &golden.tokens, &[golden.tokens.len()]);
    for (position, expected) in golden.positions.iter().zip(&golden.logits) {
        let difference = largest_difference(&rows[*position], expected);
        assert!(difference < 2e-4, "{name}, position {position}: {difference}");
    }
    assert_eq!(arg_max(rows.last().unwrap()), golden.greedy_tokens[0]);
}

#[rstest]
fn cutting_and_company_change_no_bit(#[values(ranks(4, 1, 1), ranks(4, 4, 1), ranks(4, 4, 4))] ranks: Ranks) {
    let tokens = long_prompt("muse-spark-tiny");
    let options = Options {
        kv_dtype: KvDType::F16,
        ..exact()
    };
    let factory = load("muse-spark-tiny", options).factory(ranks, 1);
    let run = |pieces: &[usize]| bits(&Sequences::new(factory().unwrap(), 1).run(0, &tokens, pieces));
    let whole = run(&[tokens.len()]);
    assert_eq!(run(&[1]), whole, "token by token");
    assert_eq!(run(&[7, 1, 16, 3, 33]), whole, "odd pieces");

    let mut sequences = Sequences::new(factory().unwrap(), 2);
    let part = |seq, tokens| Part {
        seq,
        start: 0,
        tokens,
        wanted: Wanted::All,
    };
    let both = sequences.step(&[part(1, &tokens[40..67]), part(0, &tokens)]);
    let both: Vec<Vec<f32>> = both.into_iter().map(Result::unwrap).collect();
    assert_eq!(bits(&both[27..]), whole, "next to another");
}

/// Dividing by tokens adds the same numbers in the same order: a prompt may be computed so and continued without.
#[test]
fn division_by_tokens_changes_no_bit() {
    let tokens = long_prompt("muse-spark-tiny");
    let run = |ranks| {
        let mut sequences = Sequences::new(divided("muse-spark-tiny", ranks), 1);
        bits(&sequences.run(0, &tokens, &[tokens.len()]))
    };
    assert_eq!(run(ranks(4, 4, 4)), run(ranks(4, 4, 1)));
}

/// Prefill and decode may be divided differently and exchange pages all the same.
#[test]
fn ranks_are_no_part_of_what_a_model_is() {
    let loaded = load("muse-spark-tiny", exact());
    for ranks in [ranks(4, 4, 4), ranks(2, 1, 1)] {
        let model = loaded.factory(ranks, 1)().unwrap();
        assert_eq!(model.info(), loaded.info());
    }
}

/// Prefill here, decode there.
#[rstest]
#[case(ranks(4, 4, 4), Ranks::ONE)]
#[case(ranks(4, 4, 1), ranks(2, 1, 1))]
#[case(Ranks::ONE, ranks(3, 1, 1))]
#[case(ranks(16, 16, 1), ranks(4, 4, 1))]
fn pages_move_between_ways_of_dividing(#[case] from: Ranks, #[case] to: Ranks) {
    let prompt = recorded("prompt2", None);
    let mut source = Sequences::new(divided("muse-spark-tiny", from), 1);
    let rows = source.run(0, &prompt.tokens, &[prompt.tokens.len()]);
    let mut target = Sequences::new(divided("muse-spark-tiny", to), 3);
    let classes = source.model.info().classes.clone();
    for (class, described) in classes.iter().enumerate() {
        let moves = source.table(0, class).into_iter().zip(target.table(2, class));
        for (old, new) in moves.take(prompt.tokens.len().div_ceil(16)) {
            let (mut bytes, mut again) = (Vec::new(), Vec::new());
            source.model.export(class, old, &mut bytes);
            assert_eq!(bytes.len(), described.block_bytes);
            target.model.import(class, new, &bytes).unwrap();
            target.model.export(class, new, &mut again);
            assert!(bytes == again, "a page comes out as it went in");
        }
    }
    let mut row = rows.last().unwrap().clone();
    for (step, expected) in prompt.greedy.iter().enumerate() {
        assert_eq!(arg_max(&row), *expected, "step {step}");
        row = target.append(2, prompt.tokens.len() + step, *expected);
    }
}

/// A rank with a block that is not there panics; the others are waiting for it.
#[test]
fn a_panic_of_a_rank_ends_the_model_with_an_error() {
    let mut model = divided("muse-spark-tiny", ranks(4, 4, 1));
    model.allocate(&[2, 2]).unwrap();
    let missing = [BlockId(7)];
    let tables: [&[BlockId]; 2] = [&missing, &missing];
    let slice = cluster_engine::Slice {
        seq: cluster_engine::SeqId(0),
        tokens: &[5],
        start: 0,
        tables: &tables,
        embedded: &[],
        wanted: Wanted::Last,
    };
    let batch = cluster_engine::Batch { slices: &[slice] };
    let mut outputs = cluster_engine::Outputs::default();
    model.forward(&batch, &mut outputs).unwrap_err();
    model.forward(&batch, &mut outputs).unwrap_err();
}

#[test]
fn impossible_ranks_fail_with_the_rule() {
    let loaded = load("muse-spark-tiny", exact());
    let error = loaded.factory(ranks(4, 2, 1), 1)().err().unwrap();
    assert_eq!(error.to_string(), "ranks expert is 2: it must be 1 or equal tensor, 4");
    let options = Options {
        ranks: ranks(4, 1, 4),
        ..exact()
    };
    let error = open(&path("muse-spark-tiny"), options).unwrap_err();
    assert_eq!(
        error.to_string(),
        "ranks sequence is 4: it needs whole experts on each rank: expert must equal tensor, 4"
    );
}
