use super::{Heads, Ranks, RanksError, Shard, part};
use crate::spec::from_config;

fn shard(tensor: usize, rank: usize) -> Shard {
    let ranks = Ranks { tensor, ..Ranks::ONE };
    Shard { rank, ranks }
}

fn spec(checkpoint: &str) -> crate::ModelSpec {
    let path = format!("{}/tests/fixtures/{checkpoint}/config.json", env!("CARGO_MANIFEST_DIR"));
    from_config(&std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn parts_cover_everything_once_and_differ_by_one_at_most() {
    for len in [0, 1, 7, 8, 48, 1536] {
        for parts in 1..20 {
            let ranges: Vec<_> = (0..parts).map(|index| part(len, parts, index)).collect();
            assert_eq!(ranges[0].start, 0);
            assert_eq!(ranges[parts - 1].end, len);
            assert!(ranges.windows(2).all(|pair| pair[0].end == pair[1].start));
            assert!(ranges.iter().all(|range| range.len().abs_diff(len / parts) <= 1));
        }
    }
}

#[test]
fn inner_widths_are_cut_between_blocks() {
    let cut = |rank| shard(4, rank).inner(96, 32);
    assert_eq!([cut(0), cut(1), cut(2), cut(3)], [0..0, 0..32, 32..64, 64..96]);
}

/// Eight query heads over two key heads.
#[test]
fn key_heads_follow_the_query_heads_that_read_them() {
    let attention = &spec("muse-spark-tiny").layers[0].attention;
    let heads = |tensor, rank| shard(tensor, rank).heads(attention);
    let with = |query, kv: &[usize]| Heads { query, kv: kv.into() };
    assert_eq!(heads(1, 0), with(0..8, &[0, 1]));
    assert_eq!(heads(2, 1), with(4..8, &[1]));
    assert_eq!(heads(4, 1), with(2..4, &[0]), "copied to two ranks");
    assert_eq!(
        heads(3, 1),
        with(2..5, &[0, 0, 1]),
        "an uneven group: one place for each query head"
    );
    assert_eq!(heads(16, 4), with(2..2, &[]));
    assert_eq!(heads(16, 5), with(2..3, &[0]));
}

#[test]
fn impossible_ranks_are_refused_with_the_rule() {
    let spec = spec("muse-spark-tiny");
    let ranks = |tensor, expert, sequence| Ranks {
        tensor,
        expert,
        sequence,
    };
    let refusal = |ranks: Ranks| ranks.check(&spec).unwrap_err().to_string();
    assert_eq!(ranks(4, 4, 4).check(&spec), Ok::<(), RanksError>(()));
    assert_eq!(
        refusal(ranks(0, 1, 1)),
        "ranks tensor is 0: between 1 and 1024 are possible"
    );
    assert_eq!(
        refusal(ranks(4, 2, 1)),
        "ranks expert is 2: it must be 1 or equal tensor, 4"
    );
    assert_eq!(
        refusal(ranks(4, 4, 2)),
        "ranks sequence is 2: it must be 1 or equal tensor, 4"
    );
    assert_eq!(
        refusal(ranks(4, 1, 4)),
        "ranks sequence is 4: it needs whole experts on each rank: expert must equal tensor, 4"
    );
}
