use super::*;

const GRID: Grid = Grid {
    clips: 1,
    rows: 4,
    columns: 6,
};

#[test]
fn windows_are_cut_from_the_top_left_and_smaller_at_the_edges() {
    let (order, lengths) = GRID.windows([4, 4]);
    assert_eq!(lengths, [16, 8]);
    assert_eq!(order[..5], [0, 1, 2, 3, 6]);
    assert_eq!(order[16..], [4, 5, 10, 11, 16, 17, 22, 23]);
    let mut sorted = order;
    sorted.sort_unstable();
    assert_eq!(sorted, (0..24).collect::<Vec<_>>());
}

#[test]
fn cells_follow_one_another_row_by_row() {
    let order = GRID.cells(2);
    assert_eq!(order[..8], [0, 1, 6, 7, 2, 3, 8, 9]);
    assert_eq!(order[12..16], [12, 13, 18, 19]);
}

#[test]
fn positions_divide_by_the_number_of_rows() {
    // A table as large as the turned grid: every patch has an entry of its own.
    for index in 0..GRID.clip() {
        let shares: Vec<Share> = GRID.shares(index, [6, 4]).filter(|share| share.weight != 0.0).collect();
        let entry = index / 4 * 4 + index % 4;
        assert_eq!(shares, [Share { entry, weight: 1.0 }]);
    }
}

#[test]
fn what_lies_outside_the_table_counts_as_nothing() {
    // Twice as many places as entries: the outermost ones lie a quarter beyond the table in both directions.
    let grid = Grid {
        clips: 1,
        rows: 4,
        columns: 4,
    };
    let sum = |index| grid.shares(index, [2, 2]).map(|share| share.weight).sum::<f32>();
    assert_eq!(sum(0), 0.75 * 0.75);
    assert_eq!(sum(1), 0.75);
    assert_eq!(sum(5), 1.0);
}

#[test]
fn angles_count_columns_first_and_from_one() {
    let angles: Vec<f32> = GRID.angles(8, &[1.0, 0.5]).collect();
    assert_eq!(angles, [3.0, 1.5, 2.0, 1.0]);
}
