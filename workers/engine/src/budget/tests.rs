use super::*;

fn class(kind: KvKind, block_bytes: usize) -> KvClass {
    KvClass {
        kind,
        block_tokens: 16,
        block_bytes,
    }
}

#[test]
fn one_class_gets_all_the_memory() {
    assert_eq!(blocks_for(&[class(KvKind::Full, 100)], 1099, 4, 64, 4096), [10]);
}

#[test]
fn a_window_gets_what_it_can_use_and_the_full_class_the_rest() {
    let classes = [class(KvKind::Full, 100), class(KvKind::Window { tokens: 64 }, 300)];
    // Five pages a sequence, for two sequences, twice; four pages of chunks and two that are cut.
    assert_eq!(blocks_for(&classes, 1_000_000, 2, 64, 1 << 20), [(10_000 - 26 * 3), 26]);
    // A context of two pages needs no more of the window.
    assert_eq!(blocks_for(&classes, 1_000_000, 2, 64, 32)[1], 2 * 2 * 2 + 6);
}

#[test]
fn scarce_memory_is_shared_page_by_page() {
    let classes = [class(KvKind::Full, 100), class(KvKind::Window { tokens: 64 }, 300)];
    assert_eq!(blocks_for(&classes, 4000, 2, 64, 1 << 20), [10, 10]);
    assert_eq!(blocks_for(&classes, 399, 2, 64, 1 << 20), [3, 0]);
}

#[test]
fn a_window_touches_one_page_more_than_it_fills() {
    let pages =
        [(1, 4), (2, 4), (4, 4), (5, 4), (6, 4), (8, 4), (9, 4)].map(|(tokens, block)| live_pages(tokens, block));
    assert_eq!(pages, [1, 2, 2, 2, 3, 3, 3]);
}
