use cluster_messages::{MediaFile, MediumDigest, MediumKind, MediumSource};

use super::*;

const LIMITS: Limits = Limits {
    block_tokens: 4,
    context: 64,
    prefix_cache: true,
};

/// Media at 6..9 and 13..14, of width 2.
fn rows() -> MediaRows {
    let medium = |first, tokens| Medium {
        kind: MediumKind::Image,
        digest: MediumDigest(1),
        first,
        tokens,
        source: MediumSource::File(MediaFile {
            kind: MediumKind::Image,
            bytes: bytes::Bytes::new(),
        }),
    };
    MediaRows::of(&[medium(6, 3), medium(13, 1)])
}

#[test]
fn whole_pages_before_a_missing_medium_can_run() {
    let mut rows = rows();
    assert_eq!(rows.runnable(0, LIMITS), 4);
    assert_eq!(rows.runnable(4, LIMITS), 0);
    assert_eq!(rows.runnable(5, LIMITS), 0);
    assert_eq!(rows.ask(0), [0, 1]);
    rows.supply(0, [0.0; 6].into(), 0);
    assert_eq!(rows.runnable(4, LIMITS), 8);
    rows.supply(1, [0.0; 2].into(), 0);
    assert_eq!(rows.runnable(4, LIMITS), u32::MAX);
}

#[test]
fn each_medium_is_asked_for_once_and_not_when_it_was_found() {
    let mut rows = rows();
    assert_eq!(rows.ask(9), [1]);
    assert!(rows.ask(9).is_empty());
    rows.forget();
    assert_eq!(rows.ask(8), [0, 1]);
    rows.forget();
    assert!(rows.ask(14).is_empty());
}

#[test]
fn a_chunk_gets_the_rows_of_its_own_positions() {
    let mut rows = rows();
    rows.ask(0);
    rows.supply(0, (0u8..6).map(f32::from).collect(), 0);
    rows.supply(1, [7.0, 8.0].into(), 0);
    let within = |start, end| {
        let embedded = rows.within(start, end, 2);
        embedded
            .map(|embedded| (embedded.first, embedded.rows.to_vec()))
            .collect::<Vec<_>>()
    };
    assert_eq!(within(0, 6), []);
    assert_eq!(within(4, 8), [(6, vec![0.0, 1.0, 2.0, 3.0])]);
    assert_eq!(within(8, 14), [(8, vec![4.0, 5.0]), (13, vec![7.0, 8.0])]);
    rows.computed(9);
    assert_eq!(rows.runnable(9, LIMITS), u32::MAX);
    assert!(rows.ask(0).is_empty(), "it was asked");
}

#[test]
fn rows_that_nobody_asked_for_are_dropped() {
    let mut rows = rows();
    rows.supply(0, [0.0; 6].into(), 0);
    assert_eq!(rows.ask(0), [0, 1]);
    rows.supply(0, [0.0; 6].into(), 9);
    assert_eq!(rows.runnable(0, LIMITS), 4, "its placeholders count as found");
}
