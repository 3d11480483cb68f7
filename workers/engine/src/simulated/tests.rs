use super::*;
use crate::{Embedded, Row, SeqId, Wanted};

fn model() -> Simulated {
    let mut model = Simulated::new(SimulatedConfig {
        vocabulary: 50,
        context: 64,
        block_tokens: 2,
        seed: 3,
        cost: Cost {
            step_us: 100,
            token_ns: 2000,
            attended_ns: 500,
        },
    });
    model.allocate(&[8]).unwrap();
    model
}

/// The last row after running `tokens` from `start` on.
fn row(model: &mut Simulated, table: &[u32], start: u32, tokens: &[u32]) -> Vec<f32> {
    let table: Vec<BlockId> = table.iter().map(|block| BlockId(*block)).collect();
    let slice = Slice {
        embedded: &[],
        seq: SeqId(0),
        tokens,
        start,
        tables: &[&table],
        wanted: Wanted::Last,
    };
    let mut out = Outputs::default();
    model.forward(&Batch { slices: &[slice] }, &mut out).unwrap();
    match out.row(0) {
        Row::Logits(logits) => logits.to_vec(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn rows_depend_on_the_whole_history_and_not_on_how_it_was_cut_or_where_it_lies() {
    let whole = row(&mut model(), &[0, 1, 2], 0, &[5, 6, 7, 8, 9]);
    let mut cut = model();
    row(&mut cut, &[4, 7, 1], 0, &[5, 6, 7]);
    assert_eq!(row(&mut cut, &[4, 7, 1], 3, &[8, 9]), whole);
    assert_ne!(row(&mut model(), &[0, 1, 2], 0, &[4, 6, 7, 8, 9]), whole);
}

#[test]
fn every_error_of_paging_changes_the_row() {
    let mut right = model();
    row(&mut right, &[0, 1, 2], 0, &[5, 6, 7, 8]);
    let whole = row(&mut right.clone(), &[0, 1, 2], 4, &[9]);
    for wrong_table in [[1, 0, 2], [0, 3, 2], [3, 1, 2], [0, 0, 2]] {
        assert_ne!(row(&mut right.clone(), &wrong_table, 4, &[9]), whole, "{wrong_table:?}");
    }
    // The same tokens after other tokens are other KV.
    row(&mut right, &[5, 6], 0, &[1, 1, 7, 8]);
    assert_ne!(row(&mut right, &[0, 6, 2], 4, &[9]), whole);
}

#[test]
fn a_page_carries_its_content_and_a_damaged_one_shows() {
    let mut from = model();
    row(&mut from, &[0, 1], 0, &[5, 6, 7]);
    let expected = row(&mut from.clone(), &[0, 1], 3, &[8]);
    let pages = [0, 1].map(|block| {
        let mut bytes = Vec::new();
        from.export(0, BlockId(block), &mut bytes);
        bytes
    });
    let mut to = model();
    to.import(0, BlockId(6), &pages[0]).unwrap();
    to.import(0, BlockId(2), &pages[1]).unwrap();
    assert_eq!(row(&mut to.clone(), &[6, 2], 3, &[8]), expected);
    let mut damaged = pages[0].clone();
    damaged[3] ^= 1;
    to.import(0, BlockId(6), &damaged).unwrap();
    assert_ne!(row(&mut to, &[6, 2], 3, &[8]), expected);
    let error = to.import(0, BlockId(6), &pages[0][1..]).unwrap_err();
    assert_eq!(error, ModelError::PageSize { expected: 16, got: 15 });
}

#[test]
fn a_step_costs_what_it_runs_and_reads() {
    let mut model = model();
    row(&mut model, &[0, 1, 2], 0, &[5, 6, 7, 8]);
    assert_eq!(model.step_cost_us(), 100 + 8);
    row(&mut model, &[0, 1, 2], 4, &[9]);
    assert_eq!(model.step_cost_us(), 100 + 2 + 2);
}

/// The last row of a model with a window of three positions, after `tokens` that follow `start` positions.
fn window_row(model: &mut Simulated, tables: [&[BlockId]; 2], start: u32, tokens: &[u32]) -> Vec<f32> {
    let slice = Slice {
        embedded: &[],
        seq: SeqId(0),
        tokens,
        start,
        tables: &tables,
        wanted: Wanted::Last,
    };
    let mut out = Outputs::default();
    model.forward(&Batch { slices: &[slice] }, &mut out).unwrap();
    match out.row(0) {
        Row::Logits(logits) => logits.to_vec(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_window_is_read_as_far_as_it_goes() {
    let mut model = model().with_window(3);
    model.allocate(&[8, 8]).unwrap();
    let blocks = [0, 1, 2, 3].map(BlockId);
    window_row(&mut model, [&blocks, &blocks], 0, &[5, 6, 7, 8, 9]);
    let right = window_row(&mut model.clone(), [&blocks, &blocks], 5, &[1]);
    // From position 5 on, positions 3 and 4 are read, not the first block.
    let mut table = blocks;
    table[0] = BlockId::NONE;
    assert_eq!(window_row(&mut model.clone(), [&blocks, &table], 5, &[1]), right);
    table[1] = BlockId(7);
    assert_ne!(window_row(&mut model, [&blocks, &table], 5, &[1]), right);
}

#[test]
fn rows_stand_in_for_tokens_number_by_number() {
    let mut model = model().with_width(2);
    model.allocate(&[8]).unwrap();
    let table = [0, 1].map(BlockId);
    let mut row = |tokens: &[u32], embedded: &[(u32, &[f32])]| {
        let embedded = embedded.iter().map(|(first, rows)| Embedded { first: *first, rows });
        let embedded: Vec<Embedded<'_>> = embedded.collect();
        let slice = Slice {
            embedded: &embedded,
            seq: SeqId(0),
            tokens,
            start: 0,
            tables: &[&table],
            wanted: Wanted::Last,
        };
        let mut out = Outputs::default();
        model.forward(&Batch { slices: &[slice] }, &mut out).unwrap();
        match out.row(0) {
            Row::Logits(logits) => logits.to_vec(),
            other => panic!("{other:?}"),
        }
    };
    let right = row(&[1, 2, 3], &[(1, &[0.5, 0.25])]);
    assert_eq!(row(&[1, 9, 3], &[(1, &[0.5, 0.25])]), right, "the token does not count");
    assert_ne!(row(&[1, 2, 3], &[(1, &[0.5, 0.26])]), right);
    assert_ne!(row(&[1, 2, 3], &[(2, &[0.5, 0.25])]), right);
    assert_ne!(row(&[1, 2, 3], &[]), right);
}
