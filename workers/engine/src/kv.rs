//! The KV memory of one engine: a pool per class, one table per sequence, and the prefix tree over both.
//!
//! ```text
//!  Table (of a sequence)      Pool per class             Prefix
//!  class 0: b7 b2 b9   ─────▶ holders of each block ◀─── hash → page (a block of every class)
//!  class 1: b7 b2 b9
//! ```
//! It knows block ids and hashes; not tokens, not which sequence a table belongs to, not what a block contains.

use cluster_messages::BlockHash;

use crate::{BlockId, pool::Pool, prefix::Prefix};

/// The blocks of one sequence: for each class in the order of positions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Table {
    classes: Vec<Vec<BlockId>>,
}

impl Table {
    pub(crate) fn new(classes: usize) -> Self {
        Self {
            classes: vec![Vec::new(); classes],
        }
    }

    /// Pages it has blocks for.
    pub(crate) fn pages(&self) -> u32 {
        self.classes[0].len() as u32
    }

    /// The blocks of each class.
    pub(crate) fn classes(&self) -> impl Iterator<Item = &[BlockId]> {
        self.classes.iter().map(Vec::as_slice)
    }

    /// The block of each class of one page.
    pub(crate) fn page(&self, page: u32) -> impl Iterator<Item = BlockId> {
        self.classes.iter().map(move |blocks| blocks[page as usize])
    }
}

/// A change of what can be found by hash, in the order in which it happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    Stored(BlockHash),
    /// The blocks are reused from the next forward pass on; until then they have their old content.
    Removed {
        hash: BlockHash,
        blocks: Vec<BlockId>,
    },
}

#[derive(Debug)]
pub(crate) struct Kv {
    pools: Vec<Pool>,
    prefix: Prefix,
    changes: Vec<Change>,
}

impl Kv {
    pub(crate) fn new(classes: usize, blocks: u32) -> Self {
        Self {
            pools: (0..classes).map(|_| Pool::new(blocks)).collect(),
            prefix: Prefix::new(blocks),
            changes: Vec::new(),
        }
    }

    pub(crate) fn table(&self) -> Table {
        Table::new(self.pools.len())
    }

    pub(crate) fn total(&self) -> u32 {
        self.pools[0].total()
    }

    /// Pages that only the prefix tree keeps.
    pub(crate) fn cached(&self) -> u32 {
        self.prefix.unheld()
    }

    /// Pages that sequences hold.
    pub(crate) fn used(&self) -> u32 {
        self.total() - self.pools[0].free() - self.cached()
    }

    /// How many of these pages, from the first on, can be found.
    pub(crate) fn hits(&self, hashes: &[BlockHash]) -> u32 {
        hashes
            .iter()
            .take_while(|hash| self.prefix.find(**hash).is_some())
            .count() as u32
    }

    /// Whether a table of `pages` pages that begins with these found ones can be opened.
    pub(crate) fn fits(&self, found: &[BlockHash], pages: u32) -> bool {
        // Found pages without holders count as available, but can not be evicted any more once they are held.
        let unheld = found.iter().filter(|hash| !self.is_held(**hash)).count() as u32;
        let available = self.pools[0].free() + self.prefix.unheld() - unheld;
        pages - found.len() as u32 <= available
    }

    fn is_held(&self, hash: BlockHash) -> bool {
        self.prefix
            .find(hash)
            .is_some_and(|page| self.pools[0].is_held(page.blocks[0]))
    }

    /// Fills an empty table: found pages first, then new ones. The caller asked `fits`.
    pub(crate) fn open(&mut self, table: &mut Table, found: &[BlockHash], pages: u32) {
        for hash in found {
            let blocks = self.hold(*hash).expect("found pages are in the tree");
            for (column, block) in table.classes.iter_mut().zip(blocks) {
                column.push(block);
            }
        }
        while table.pages() < pages {
            let grown = self.grow(table);
            assert!(grown, "a table that fits can be filled");
        }
    }

    /// Adds a new page to a table; false if every block is held.
    pub(crate) fn grow(&mut self, table: &mut Table) -> bool {
        if self.pools[0].free() == 0 && !self.evict() {
            return false;
        }
        for (pool, column) in self.pools.iter_mut().zip(&mut table.classes) {
            column.push(pool.take().expect("all classes have equally many free blocks"));
        }
        true
    }

    fn evict(&mut self) -> bool {
        let Some(page) = self.prefix.evict() else { return false };
        for (pool, block) in self.pools.iter_mut().zip(&page.blocks) {
            pool.recycle(*block);
        }
        self.changes.push(Change::Removed {
            hash: page.hash,
            blocks: page.blocks,
        });
        true
    }

    /// Makes a complete page of a table known under its hash. If an equal page is known already, the table gets that one
    /// instead: the same tokens after the same tokens have the same KV to the last bit.
    pub(crate) fn store(&mut self, table: &mut Table, page: u32, hash: BlockHash, parent: Option<BlockHash>) {
        if !self.share(table, page, hash) {
            self.prefix.insert(hash, parent, table.page(page).collect());
            self.changes.push(Change::Stored(hash));
        }
    }

    /// Replaces a page of a table by the one known under this hash, if there is one.
    pub(crate) fn share(&mut self, table: &mut Table, page: u32, hash: BlockHash) -> bool {
        let Some(blocks) = self.hold(hash) else { return false };
        let own: Vec<BlockId> = table.page(page).collect();
        self.release_page(&own);
        for (column, block) in table.classes.iter_mut().zip(blocks) {
            column[page as usize] = block;
        }
        true
    }

    fn hold(&mut self, hash: BlockHash) -> Option<Vec<BlockId>> {
        let blocks = self.prefix.find(hash)?.blocks.clone();
        if !self.pools[0].is_held(blocks[0]) {
            self.prefix.hold(blocks[0]);
        }
        for (pool, block) in self.pools.iter_mut().zip(&blocks) {
            pool.retain(*block);
        }
        Some(blocks)
    }

    /// Gives all blocks of a table back; known pages stay findable.
    pub(crate) fn close(&mut self, table: &mut Table) {
        // From the end, so that a page is never held without its parents.
        for page in (0..table.pages()).rev() {
            let blocks: Vec<BlockId> = table.page(page).collect();
            self.release_page(&blocks);
        }
        table.classes.iter_mut().for_each(Vec::clear);
    }

    fn release_page(&mut self, blocks: &[BlockId]) {
        let known = self.prefix.contains(blocks[0]);
        let mut last = false;
        for (pool, block) in self.pools.iter_mut().zip(blocks) {
            last = pool.release(*block);
            if last && !known {
                pool.recycle(*block);
            }
        }
        if last && known {
            self.prefix.leave(blocks[0]);
        }
    }

    /// Everything that can be found, by block.
    pub(crate) fn held(&self) -> Vec<BlockHash> {
        self.prefix.iter().map(|page| page.hash).collect()
    }

    pub(crate) fn has_changes(&self) -> bool {
        !self.changes.is_empty()
    }

    pub(crate) fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    /// Proves that every block is free, held or kept, exactly once, and held as often as tables name it.
    pub(crate) fn check<'a>(&self, tables: impl Iterator<Item = &'a Table>) -> Result<(), String> {
        let tables: Vec<&Table> = tables.collect();
        for (class, pool) in self.pools.iter().enumerate() {
            let mut named = vec![0; pool.total() as usize];
            for block in tables.iter().flat_map(|table| &table.classes[class]) {
                named[block.0 as usize] += 1;
            }
            if named != pool.holders() {
                return Err(format!(
                    "class {class}: tables name blocks {named:?} times, the pool counts {:?}",
                    pool.holders()
                ));
            }
            let mut places: Vec<u32> = named.iter().map(|holders| u32::from(*holders > 0)).collect();
            pool.free_list().iter().for_each(|block| places[block.0 as usize] += 1);
            let kept = self
                .prefix
                .iter()
                .map(|page| page.blocks[class])
                .filter(|block| !pool.is_held(*block));
            kept.for_each(|block| places[block.0 as usize] += 1);
            if let Some(block) = places.iter().position(|places| *places != 1) {
                return Err(format!("class {class}: block {block} is in {} places", places[block]));
            }
        }
        self.prefix.check(|block| self.pools[0].is_held(block))
    }
}
