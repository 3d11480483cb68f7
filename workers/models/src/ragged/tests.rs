//! A batch of three slices, flat.

use cluster_engine::{Batch, BlockId, Embedded, SeqId, Slice, Wanted};

use super::{Ragged, Rows};

fn slice<'a>(seq: u64, tokens: &'a [u32], start: u32, tables: &'a [&'a [BlockId]], wanted: Wanted) -> Slice<'a> {
    Slice {
        embedded: &[],
        seq: SeqId(seq),
        tokens,
        start,
        tables,
        wanted,
    }
}

#[test]
fn rows_and_tables_stay_together() {
    let (a, b, c) = (
        [BlockId(4), BlockId(2)],
        [BlockId(7)],
        [BlockId(9), BlockId(1), BlockId(3)],
    );
    let tables: [[&[BlockId]; 2]; 3] = [[&a, &b], [&b, &c], [&c, &a]];
    let [first, second, third] = &tables;
    let slices = [
        slice(1, &[10, 11, 12], 5, first, Wanted::Last),
        slice(2, &[20], 0, second, Wanted::None),
        slice(3, &[30, 31], 8, third, Wanted::All),
    ];
    let mut ragged = Ragged::default();
    ragged.fill(&Batch { slices: &slices }, |_| true);
    assert_eq!(ragged.tokens, [10, 11, 12, 20, 30, 31]);
    assert_eq!(ragged.positions, [5, 6, 7, 0, 8, 9]);
    assert_eq!((ragged.len(Rows::All), ragged.len(Rows::Wanted)), (6, 3));
    assert_eq!(ragged.wanted().collect::<Vec<_>>(), [2..3, 4..4, 4..6]);
    assert_eq!(ragged.wanted_positions(), [7, 8, 9]);
    let tables: Vec<_> = ragged.tables(1).collect();
    assert_eq!(
        tables,
        [(&[7][..], 5, 0..3), (&[9, 1, 3][..], 0, 3..4), (&[4, 2][..], 8, 4..6)]
    );

    let sequences = |rows| {
        let sequences = ragged.sequences(0, rows).into_iter();
        sequences
            .map(|sequence| (sequence.blocks[0], sequence.start, sequence.tokens))
            .collect::<Vec<_>>()
    };
    assert_eq!(sequences(Rows::All), [(4, 5, 3), (7, 0, 1), (9, 8, 2)]);
    assert_eq!(sequences(Rows::Wanted), [(4, 7, 1), (9, 8, 2)]);

    ragged.fill(&Batch { slices: &slices }, |slice| slice.seq != SeqId(1));
    assert_eq!(ragged.tokens, [20, 30, 31], "the earlier batch is forgotten");
    assert_eq!(ragged.tables(0).next(), Some((&[7][..], 0, 0..1)));
}

#[test]
fn rows_of_media_replace_the_embeddings_of_their_positions() {
    let tables: [&[BlockId]; 0] = [];
    let runs = [
        Embedded {
            first: 6,
            rows: &[1.0, 2.0],
        },
        Embedded {
            first: 8,
            rows: &[3.0, 4.0, 5.0, 6.0],
        },
    ];
    let first = slice(1, &[7, 7], 0, &tables, Wanted::None);
    let second = Slice {
        embedded: &runs,
        ..slice(2, &[8, 9, 8, 9, 9], 5, &tables, Wanted::Last)
    };
    let mut ragged = Ragged::default();
    ragged.fill(
        &Batch {
            slices: &[first, second],
        },
        |_| true,
    );
    let mut rows = vec![0.0; 14];
    ragged.put_embedded(2, &mut rows);
    assert_eq!(rows[..6], [0.0; 6]);
    assert_eq!(rows[6..], [1.0, 2.0, 0.0, 0.0, 3.0, 4.0, 5.0, 6.0]);
    ragged.keep_wanted(2, &mut rows);
    assert_eq!(rows, [5.0, 6.0]);
}
