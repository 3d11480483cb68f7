use super::*;

fn hash(name: u128) -> BlockHash {
    BlockHash(name)
}

/// A tree of held pages: each entry is a hash and its parent; blocks are numbered in order.
fn tree(pages: &[(u128, Option<u128>)]) -> Prefix {
    let mut prefix = Prefix::new(pages.len() as u32);
    for (block, (name, parent)) in pages.iter().enumerate() {
        prefix.insert(hash(*name), parent.map(hash), vec![BlockId(block as u32)]);
    }
    prefix
}

fn leave(prefix: &mut Prefix, blocks: &[u32]) {
    blocks.iter().for_each(|block| prefix.leave(BlockId(*block)));
}

fn evict_all(prefix: &mut Prefix) -> Vec<u128> {
    std::iter::from_fn(|| prefix.evict()).map(|page| page.hash.0).collect()
}

#[test]
fn held_pages_are_not_evicted() {
    let mut prefix = tree(&[(1, None), (2, Some(1))]);
    assert!(prefix.evict().is_none());
    prefix.leave(BlockId(1));
    assert_eq!(prefix.unheld(), 1);
    assert_eq!(evict_all(&mut prefix), [2]);
    assert!(prefix.find(hash(1)).is_some());
    assert!(prefix.find(hash(2)).is_none());
}

#[test]
fn the_longest_unused_leaf_goes_first_and_parents_go_after_their_children() {
    // 1 ─ 2 ─ 3 and 1 ─ 4.
    let mut prefix = tree(&[(1, None), (2, Some(1)), (3, Some(2)), (4, Some(1))]);
    leave(&mut prefix, &[3, 2, 1, 0]);
    prefix.check(|_| false).unwrap();
    assert_eq!(evict_all(&mut prefix), [4, 3, 2, 1]);
}

#[test]
fn use_makes_a_page_young_again() {
    let mut prefix = tree(&[(1, None), (2, None), (3, None)]);
    leave(&mut prefix, &[0, 1, 2]);
    prefix.hold(BlockId(0));
    assert_eq!(prefix.unheld(), 2);
    prefix.leave(BlockId(0));
    assert_eq!(evict_all(&mut prefix), [2, 3, 1]);
}

#[test]
fn a_parent_becomes_a_leaf_with_its_own_age() {
    // The chain 1 ─ 2 was left before page 3 was, so it goes as a whole before it.
    let mut prefix = tree(&[(1, None), (2, Some(1)), (3, None)]);
    leave(&mut prefix, &[1, 0, 2]);
    assert_eq!(evict_all(&mut prefix), [2, 1, 3]);
}
