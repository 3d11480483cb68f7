//! The blocks of one window class that pages of the prefix tree name, and which of those without holders goes next.
//!
//! A page can lose its window block and stay in the tree. Worth most are the blocks where prompts end or part, because
//! that is where later prompts go on: blocks in the middle of prompts go first, within each kind the longest unused.

use std::collections::BTreeSet;

use crate::BlockId;

#[derive(Debug)]
pub(crate) struct Shelf {
    /// By block.
    places: Vec<Option<Place>>,
    /// Blocks without holders, the next to go first.
    kept: BTreeSet<Worth>,
    clock: u64,
}

/// Whether it is an end, when it lost its last holder, and which block it is.
type Worth = (bool, u64, BlockId);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Place {
    /// The class-0 block of its page.
    page: BlockId,
    is_end: bool,
    /// When it lost its last holder; none while it is held.
    left: Option<u64>,
}

impl Shelf {
    pub(crate) fn new(blocks: u32) -> Self {
        Self {
            places: vec![None; blocks as usize],
            kept: BTreeSet::new(),
            clock: 0,
        }
    }

    /// Blocks without holders.
    pub(crate) fn kept(&self) -> u32 {
        self.kept.len() as u32
    }

    /// The class-0 block of the page that names this block.
    pub(crate) fn page_of(&self, block: BlockId) -> Option<BlockId> {
        self.places[block.0 as usize].map(|place| place.page)
    }

    /// A page in the tree names this block from now on; somebody holds it.
    pub(crate) fn add(&mut self, block: BlockId, page: BlockId) {
        let place = Place {
            page,
            is_end: false,
            left: None,
        };
        let before = self.places[block.0 as usize].replace(place);
        assert!(before.is_none(), "two pages name window block {}", block.0);
    }

    /// The block is where a prompt ends or parts from others.
    pub(crate) fn mark_end(&mut self, block: BlockId) {
        if let Some(place) = &mut self.places[block.0 as usize] {
            debug_assert!(place.left.is_none(), "a block is marked while it is held");
            place.is_end = true;
        }
    }

    /// The block lost its last holder.
    pub(crate) fn keep(&mut self, block: BlockId) {
        self.clock += 1;
        let left = self.clock;
        let place = self.place_mut(block);
        place.left = Some(left);
        let worth = (place.is_end, left, block);
        self.kept.insert(worth);
    }

    /// The block got a holder.
    pub(crate) fn hold(&mut self, block: BlockId) {
        let place = self.place_mut(block);
        if let Some(left) = place.left.take() {
            let worth = (place.is_end, left, block);
            self.kept.remove(&worth);
        }
    }

    /// The block's page left the tree, or the block its page.
    pub(crate) fn remove(&mut self, block: BlockId) {
        self.hold(block);
        self.places[block.0 as usize] = None;
    }

    /// The block that is worth least, if one has no holder.
    pub(crate) fn least(&self) -> Option<BlockId> {
        self.kept.first().map(|(_, _, block)| *block)
    }

    /// All blocks that pages name, with the class-0 blocks of their pages, and whether they have no holder.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (BlockId, BlockId, bool)> {
        let blocks = (0..).map(BlockId).zip(&self.places);
        blocks.filter_map(|(block, place)| place.map(|place| (block, place.page, place.left.is_some())))
    }

    fn place_mut(&mut self, block: BlockId) -> &mut Place {
        self.places[block.0 as usize]
            .as_mut()
            .expect("callers name blocks of pages in the tree")
    }
}

#[cfg(test)]
mod tests;
