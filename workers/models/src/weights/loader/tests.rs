//! The order of the rows of heads.

use super::unpair_rows;

/// Two heads of six channels, a byte each; the file has the halves of a head interleaved.
#[test]
fn pairs_are_taken_apart_within_each_head() {
    let paired = [0, 3, 1, 4, 2, 5, 10, 13, 11, 14, 12, 15];
    assert_eq!(unpair_rows(&paired, 12, 6), [0, 1, 2, 3, 4, 5, 10, 11, 12, 13, 14, 15]);
    let wide: Vec<u8> = paired.iter().flat_map(|&row| [row, row + 100]).collect();
    let expected: Vec<u8> = [0, 1, 2, 3, 4, 5, 10, 11, 12, 13, 14, 15]
        .into_iter()
        .flat_map(|row| [row, row + 100])
        .collect();
    assert_eq!(unpair_rows(&wide, 12, 6), expected);
}
