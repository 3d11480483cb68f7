//! The blocks of one KV class: which are free, and how many sequences hold each of the others.
//!
//! A block is *free* (on the list), *held* (count above zero) or *kept* (count zero, not on the list: the prefix tree
//! still names it). The pool does not know what is in a block.

use crate::BlockId;

#[derive(Debug)]
pub(crate) struct Pool {
    holders: Vec<u32>,
    free: Vec<BlockId>,
}

impl Pool {
    pub(crate) fn new(blocks: u32) -> Self {
        Self {
            holders: vec![0; blocks as usize],
            // Reversed, so that low ids are handed out first.
            free: (0..blocks).rev().map(BlockId).collect(),
        }
    }

    pub(crate) fn total(&self) -> u32 {
        self.holders.len() as u32
    }

    pub(crate) fn free(&self) -> u32 {
        self.free.len() as u32
    }

    pub(crate) fn is_held(&self, block: BlockId) -> bool {
        self.holders[block.0 as usize] > 0
    }

    /// Takes a free block for one holder.
    pub(crate) fn take(&mut self) -> Option<BlockId> {
        let block = self.free.pop()?;
        self.holders[block.0 as usize] = 1;
        Some(block)
    }

    /// Adds a holder to a block that is held or kept.
    pub(crate) fn retain(&mut self, block: BlockId) {
        self.holders[block.0 as usize] += 1;
    }

    /// Drops a holder; true if it was the last one. The block is then kept until `recycle`.
    pub(crate) fn release(&mut self, block: BlockId) -> bool {
        let holders = &mut self.holders[block.0 as usize];
        assert!(
            *holders > 0,
            "block {} is released more often than it was held",
            block.0
        );
        *holders -= 1;
        *holders == 0
    }

    /// Puts a block without holders back on the list.
    pub(crate) fn recycle(&mut self, block: BlockId) {
        assert!(!self.is_held(block), "block {} is recycled while it is held", block.0);
        self.free.push(block);
    }

    /// How many hold each block, by id.
    pub(crate) fn holders(&self) -> &[u32] {
        &self.holders
    }

    /// The free blocks.
    pub(crate) fn free_list(&self) -> &[BlockId] {
        &self.free
    }
}
