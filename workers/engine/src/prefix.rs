//! The prefix tree: pages that can be found again by the hash of everything up to their end.
//!
//! ```text
//!  hash ──index──▶ page ──parent──▶ page ──parent──▶ root of the chain
//! ```
//! A page stands for a block of class 0, by which it is named, and for one of every other KV class unless that was evicted. Whoever holds a page holds its parents
//! too, so pages without holders form the outer parts of the tree; they are evicted leaf by leaf, the longest unused first.

use std::collections::{BTreeSet, HashMap};

use cluster_messages::BlockHash;

use crate::BlockId;

/// A page in the tree.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) hash: BlockHash,
    /// One block per class; beyond class 0 it may be `BlockId::NONE`.
    pub(crate) blocks: Vec<BlockId>,
    parent: Option<BlockId>,
    children: u32,
    held: bool,
    /// When it last lost its last holder, on the tree's own counter.
    used: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Prefix {
    index: HashMap<BlockHash, BlockId>,
    /// By class-0 block.
    pages: Vec<Option<Page>>,
    /// Leaves without holders, the longest unused first.
    leaves: BTreeSet<(u64, BlockId)>,
    unheld: u32,
    clock: u64,
}

impl Prefix {
    pub(crate) fn new(blocks: u32) -> Self {
        Self {
            pages: (0..blocks).map(|_| None).collect(),
            ..Self::default()
        }
    }

    /// Pages that nobody holds. All of them can be evicted, one after the other.
    pub(crate) fn unheld(&self) -> u32 {
        self.unheld
    }

    pub(crate) fn find(&self, hash: BlockHash) -> Option<&Page> {
        self.index.get(&hash).map(|block| self.page(*block))
    }

    pub(crate) fn contains(&self, block: BlockId) -> bool {
        self.pages[block.0 as usize].is_some()
    }

    /// Adds a page that its maker holds. Neither its hash nor its block is in the tree yet; its parent is. True if the
    /// parent had another child.
    pub(crate) fn insert(&mut self, hash: BlockHash, parent: Option<BlockHash>, blocks: Vec<BlockId>) -> bool {
        let parent = parent.map(|hash| self.index[&hash]);
        let siblings = parent.map_or(0, |parent| {
            let parent = self.page_mut(parent);
            parent.children += 1;
            parent.children - 1
        });
        let key = blocks[0];
        let before = self.index.insert(hash, key);
        assert!(before.is_none(), "hash {hash:?} is stored twice");
        let page = Page {
            hash,
            blocks,
            parent,
            children: 0,
            held: true,
            used: 0,
        };
        let before = self.pages[key.0 as usize].replace(page);
        assert!(before.is_none(), "block {} is stored twice", key.0);
        siblings > 0
    }

    /// The page got its first holder.
    pub(crate) fn hold(&mut self, block: BlockId) {
        let page = self.page_mut(block);
        debug_assert!(!page.held, "a page gets its first holder twice");
        page.held = true;
        let place = (page.used, block);
        self.leaves.remove(&place);
        self.unheld -= 1;
    }

    /// The page lost its last holder.
    pub(crate) fn leave(&mut self, block: BlockId) {
        self.clock += 1;
        let used = self.clock;
        let page = self.page_mut(block);
        page.held = false;
        page.used = used;
        if page.children == 0 {
            self.leaves.insert((used, block));
        }
        self.unheld += 1;
    }

    /// Takes out the leaf that was unused for longest.
    pub(crate) fn evict(&mut self) -> Option<Page> {
        let (_, block) = self.leaves.pop_first()?;
        let page = self.pages[block.0 as usize]
            .take()
            .expect("leaves are pages of the tree");
        self.index.remove(&page.hash);
        self.unheld -= 1;
        if let Some(parent) = page.parent {
            self.drop_child(parent);
        }
        Some(page)
    }

    fn drop_child(&mut self, parent: BlockId) {
        let page = self.page_mut(parent);
        page.children -= 1;
        if page.children == 0 && !page.held {
            let place = (page.used, parent);
            self.leaves.insert(place);
        }
    }

    /// All pages, by block.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Page> {
        self.pages.iter().flatten()
    }

    /// Compares the parts of the tree with each other; `is_held` says what the pool knows.
    pub(crate) fn check(&self, is_held: impl Fn(BlockId) -> bool) -> Result<(), String> {
        let mut children = vec![0; self.pages.len()];
        for page in self.iter() {
            let key = page.blocks[0];
            if self.index.get(&page.hash) != Some(&key) {
                return Err(format!("page of block {} is not found under its hash", key.0));
            }
            if page.held != is_held(key) {
                return Err(format!("the tree and the pool differ on who holds block {}", key.0));
            }
            if let Some(parent) = page.parent {
                children[parent.0 as usize] += 1;
                let Some(parent) = &self.pages[parent.0 as usize] else {
                    return Err(format!("the parent of block {} is gone", key.0));
                };
                if page.held && !parent.held {
                    return Err(format!("block {} is held without its parent", key.0));
                }
            }
        }
        for page in self.iter() {
            let key = page.blocks[0];
            if page.children != children[key.0 as usize] {
                return Err(format!("block {} counts {} children", key.0, page.children));
            }
            let is_leaf = !page.held && page.children == 0;
            if is_leaf != self.leaves.contains(&(page.used, key)) {
                return Err(format!("block {} is wrongly in or out of the leaves", key.0));
            }
        }
        let unheld = self.iter().filter(|page| !page.held).count() as u32;
        if unheld != self.unheld || self.index.len() != self.iter().count() {
            return Err(format!("{unheld} pages without holders, {} counted", self.unheld));
        }
        Ok(())
    }

    pub(crate) fn page(&self, block: BlockId) -> &Page {
        self.pages[block.0 as usize]
            .as_ref()
            .expect("the index names pages of the tree")
    }

    pub(crate) fn page_mut(&mut self, block: BlockId) -> &mut Page {
        self.pages[block.0 as usize]
            .as_mut()
            .expect("callers name pages of the tree")
    }
}

#[cfg(test)]
mod tests;
