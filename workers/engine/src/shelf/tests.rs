use super::*;

/// Blocks 0..4 of pages 10..14, held.
fn shelf() -> Shelf {
    let mut shelf = Shelf::new(4);
    (0..4).for_each(|block| shelf.add(BlockId(block), BlockId(10 + block)));
    shelf
}

fn drain(shelf: &mut Shelf) -> Vec<u32> {
    let next = std::iter::from_fn(|| {
        let block = shelf.least()?;
        shelf.remove(block);
        Some(block.0)
    });
    next.collect()
}

#[test]
fn held_blocks_stay() {
    let mut shelf = shelf();
    assert_eq!(shelf.least(), None);
    shelf.keep(BlockId(2));
    assert_eq!((shelf.kept(), shelf.least()), (1, Some(BlockId(2))));
    shelf.hold(BlockId(2));
    assert_eq!((shelf.kept(), shelf.least()), (0, None));
}

#[test]
fn the_middles_of_prompts_go_before_their_ends() {
    let mut shelf = shelf();
    shelf.mark_end(BlockId(1));
    [1, 3, 0, 2].iter().for_each(|block| shelf.keep(BlockId(*block)));
    assert_eq!(drain(&mut shelf), [3, 0, 2, 1]);
    assert_eq!(shelf.page_of(BlockId(1)), None);
}

#[test]
fn use_makes_a_block_young_again() {
    let mut shelf = shelf();
    [0, 1, 2].iter().for_each(|block| shelf.keep(BlockId(*block)));
    shelf.hold(BlockId(0));
    shelf.keep(BlockId(0));
    assert_eq!(drain(&mut shelf), [1, 2, 0]);
}
