use super::*;

const LAYOUT: Fingerprint = Fingerprint(1);

fn page(hash: u128, len: usize) -> CachedPage {
    CachedPage {
        hash: BlockHash(hash),
        bytes: vec![hash as u8; len].into(),
    }
}

fn held(store: &mut PageStore, hashes: &[u128]) -> usize {
    let hashes: Vec<_> = hashes.iter().copied().map(BlockHash).collect();
    store.fetch(LAYOUT, &hashes).len()
}

#[test]
fn what_was_stored_comes_back_as_it_was() {
    let mut store = PageStore::new(100);
    store.store(LAYOUT, vec![page(1, 10), page(2, 20)]);
    let pages = store.fetch(LAYOUT, &[BlockHash(1), BlockHash(2), BlockHash(3)]);
    assert_eq!(pages, [Bytes::from(vec![1; 10]), Bytes::from(vec![2; 20])]);
    assert_eq!(store.bytes(), 30);
}

#[test]
fn a_run_ends_at_the_first_page_missing() {
    let mut store = PageStore::new(100);
    store.store(LAYOUT, vec![page(1, 1), page(3, 1)]);
    assert_eq!(held(&mut store, &[1, 2, 3]), 1);
}

#[test]
fn the_least_recently_used_page_goes_first() {
    let mut store = PageStore::new(30);
    store.store(LAYOUT, vec![page(1, 10), page(2, 10), page(3, 10)]);
    assert_eq!(held(&mut store, &[1]), 1);
    let report = store.store(LAYOUT, vec![page(4, 10)]);
    assert_eq!(report, StoreReport { kept: 1, evicted: 1 });
    assert_eq!([1, 2, 3, 4].map(|hash| held(&mut store, &[hash])), [1, 0, 1, 1]);
}

#[test]
fn a_page_larger_than_the_store_is_not_kept_and_pushes_nothing_out() {
    let mut store = PageStore::new(10);
    store.store(LAYOUT, vec![page(1, 10)]);
    assert_eq!(store.store(LAYOUT, vec![page(2, 11)]), StoreReport::default());
    assert_eq!(held(&mut store, &[1]), 1);
}

#[test]
fn another_layout_replaces_everything() {
    let mut store = PageStore::new(100);
    store.store(LAYOUT, vec![page(1, 10)]);
    store.store(Fingerprint(2), vec![page(2, 5)]);
    assert_eq!(held(&mut store, &[1]), 0);
    assert_eq!(store.bytes(), 5);
}

#[test]
fn of_a_run_the_last_page_goes_first() {
    let mut store = PageStore::new(30);
    store.store(LAYOUT, vec![page(1, 10), page(2, 10), page(3, 10)]);
    assert_eq!(held(&mut store, &[1, 2, 3]), 3);
    store.store(LAYOUT, vec![page(4, 10)]);
    assert_eq!(held(&mut store, &[1, 2, 3]), 2);
}
