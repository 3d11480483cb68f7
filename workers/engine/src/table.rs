//! Which blocks a sequence holds.
//!
//! ```text
//!  page       0    1    2    3    4    5
//!  class 0    b7   b2   b9   b1   b4   b5     full: one block for every page
//!  class 1    -    -    b3   b8   b6          trailing: from the first page that is still read
//! ```
//! It does not know how many tokens a page has, nor who else holds its blocks.

use crate::BlockId;

/// The blocks of one sequence, by page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Table {
    /// Class 0.
    pub(crate) full: Vec<BlockId>,
    /// The other classes.
    pub(crate) trailing: Vec<Column>,
}

/// A sequence's blocks of a class that is not read from the beginning.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Column {
    /// By page; `BlockId::NONE` before `first`. May end before the last page.
    pub(crate) blocks: Vec<BlockId>,
    /// The first page that is still read.
    pub(crate) first: u32,
    /// Pages before this one are where prompts part from each other: worth keeping.
    pub(crate) shared_until: u32,
}

impl Table {
    pub(crate) fn new(trailing: usize) -> Self {
        Self {
            full: Vec::new(),
            trailing: vec![Column::default(); trailing],
        }
    }

    /// Pages it has blocks for.
    pub(crate) fn pages(&self) -> u32 {
        self.full.len() as u32
    }

    /// The blocks of each class.
    pub(crate) fn classes(&self) -> impl Iterator<Item = &[BlockId]> {
        let trailing = self.trailing.iter().map(|column| column.blocks.as_slice());
        std::iter::once(self.full.as_slice()).chain(trailing)
    }

    /// The block of each class of one page; `BlockId::NONE` where it has none.
    pub(crate) fn page(&self, page: u32) -> impl Iterator<Item = BlockId> {
        let trailing = self.trailing.iter().map(move |column| column.block(page));
        std::iter::once(self.full[page as usize]).chain(trailing)
    }
}

impl Column {
    pub(crate) fn len(&self) -> u32 {
        self.blocks.len() as u32
    }

    pub(crate) fn block(&self, page: u32) -> BlockId {
        self.blocks.get(page as usize).copied().unwrap_or(BlockId::NONE)
    }

    /// Puts a block at a page that is still read, and returns the one that was there.
    pub(crate) fn set(&mut self, page: u32, block: BlockId) -> BlockId {
        if page == self.len() {
            self.blocks.push(block);
            return BlockId::NONE;
        }
        std::mem::replace(&mut self.blocks[page as usize], block)
    }

    /// Takes out the blocks of all pages before `first`, each with its page.
    pub(crate) fn pass(&mut self, first: u32) -> Vec<(u32, BlockId)> {
        let end = first.min(self.len());
        let passed = (self.first..end).map(|page| (page, self.blocks[page as usize]));
        let passed = passed.collect();
        for page in self.first..end {
            self.blocks[page as usize] = BlockId::NONE;
        }
        if self.len() < first {
            self.blocks.resize(first as usize, BlockId::NONE);
        }
        self.first = self.first.max(first);
        passed
    }

    /// Says what is wrong with it.
    pub(crate) fn check(&self) -> Result<(), String> {
        let (passed, read) = self
            .blocks
            .split_at_checked(self.first as usize)
            .ok_or("its first page is beyond its end")?;
        if passed.iter().any(|block| *block != BlockId::NONE) {
            return Err(format!("a block before page {} was not given back", self.first));
        }
        if read.contains(&BlockId::NONE) {
            return Err(format!("a page from {} on has no block", self.first));
        }
        Ok(())
    }
}
