use bytes::Bytes;

use super::*;

const A: MediumDigest = MediumDigest(1);
const B: MediumDigest = MediumDigest(2);
const C: MediumDigest = MediumDigest(3);
const ONE: RequestId = RequestId(1);
const OTHER: RequestId = RequestId(2);

fn features(bytes: usize) -> Features {
    Features {
        tokens: 1,
        width: (bytes / 4) as u32,
        values: Bytes::from(vec![0; bytes]),
    }
}

/// A store of 100 bytes with 40 each under A and B, held by `ONE` until 1000.
fn store(holds: &Holds) -> FeatureStore {
    let mut store = FeatureStore::new(100);
    for digest in [A, B] {
        store.reserve(40, 0).unwrap();
        store.insert(digest, features(40), 40, holds.clone());
    }
    store
}

fn held(store: &FeatureStore) -> Vec<MediumDigest> {
    let mut held: Vec<_> = store.entries.keys().copied().collect();
    held.sort();
    held
}

#[test]
fn the_least_recently_used_goes_first() {
    let mut store = store(&Holds::new());
    assert!(store.find(A, None).is_some());
    store.reserve(40, 0).unwrap();
    store.insert(C, features(40), 40, Holds::new());
    assert_eq!(held(&store), [A, C]);
    assert_eq!(store.bytes(), 80);
}

#[test]
fn what_is_held_stays_until_its_ticket_ends_and_a_refusal_changes_nothing() {
    let mut store = store(&Holds::from([(ONE, 1000)]));
    let full = store.reserve(40, 999).unwrap_err();
    assert_eq!(
        full.to_string(),
        "40 bytes of embeddings find no room: 80 of 100 are held"
    );
    assert_eq!((held(&store), store.bytes()), (vec![A, B], 80));
    store.reserve(40, 1000).unwrap();
    assert_eq!((held(&store), store.bytes()), (vec![B], 80));
}

#[test]
fn a_fetch_shortens_its_own_hold_alone() {
    let mut store = store(&Holds::from([(ONE, 1000)]));
    assert!(store.find(A, Some((OTHER, 2000))).is_some());
    store.shorten(A, ONE, 10);
    store.shorten(B, ONE, 10);
    store.reserve(40, 10).unwrap();
    assert_eq!(held(&store), [A], "the other request still holds it");
    store.shorten(A, OTHER, 5000);
    store.release(40);
    assert!(store.reserve(100, 1999).is_err());
    store
        .reserve(100, 2000)
        .expect("a hold is never made longer by a fetch");
}

#[test]
fn room_is_taken_by_reservations_too() {
    let mut store = FeatureStore::new(100);
    store.reserve(60, 0).unwrap();
    assert!(store.reserve(60, 0).is_err());
    store.release(60);
    assert_eq!(store.bytes(), 0);
    assert!(store.could_keep(100) && !store.could_keep(101));
}

#[test]
fn holds_that_are_over_leave_no_trace() {
    let mut store = store(&Holds::from([(ONE, 1000), (OTHER, 3000)]));
    store.expire(1000);
    assert_eq!(store.entries[&A].holds, Holds::from([(OTHER, 3000)]));
}
