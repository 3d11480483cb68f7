//! The KV memory of one engine: a pool per class, one table per sequence, and the prefix tree over all of them.
//!
//! ```text
//!  Table (of a sequence)      Pool per class             Prefix
//!  class 0: b7 b2 b9   ─────▶ holders of each block ◀─── hash → page (a block of class 0, perhaps one of others)
//!  class 1: -  b2 b9                                ◀─── Shelf: which blocks of a window class go next
//! ```
//! Class 0 keeps every position. The others are *trailing*: a query at position q reads q - tokens + 1 ..= q, and a block
//! is given back once no later query reads it. (A second full class is a window without end.) A page stays in the tree
//! when its trailing blocks are evicted; a beginning of a prompt can be used only where the blocks behind its end are
//! there. It knows block ids and hashes; not tokens, not which sequence a table belongs to, not what a block contains.

use cluster_messages::BlockHash;

use crate::{BlockId, KvClass, KvKind, budget::live_pages, pool::Pool, prefix::Prefix, shelf::Shelf, table::Table};

mod check;

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
    block_tokens: u32,
    pool: Pool,
    trailing: Vec<Trailing>,
    prefix: Prefix,
    changes: Vec<Change>,
}

/// What belongs to one class other than the first.
#[derive(Debug)]
struct Trailing {
    pool: Pool,
    shelf: Shelf,
    /// What can be read from any position.
    span: Span,
}

/// Which pages a query reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Span {
    block_tokens: u32,
    /// Positions, the query's own included.
    tokens: u32,
}

impl Span {
    /// The first page that is read from `position` or any later one.
    fn first(self, position: u32) -> u32 {
        (position + 1).saturating_sub(self.tokens) / self.block_tokens
    }

    /// One past the last page that a sequence keeps blocks for which reads from page `first` on.
    fn reserved(self, first: u32, pages: u32) -> u32 {
        first
            .saturating_add(live_pages(self.tokens, self.block_tokens))
            .min(pages)
    }
}

impl Trailing {
    /// Adds a holder to a block that a page names.
    fn hold(&mut self, block: BlockId) {
        self.shelf.hold(block);
        self.pool.retain(block);
    }

    /// Drops a holder. A block that no page names is free then.
    fn release(&mut self, block: BlockId, is_end: bool) {
        let is_named = self.shelf.page_of(block).is_some();
        if is_end {
            self.shelf.mark_end(block);
        }
        match (self.pool.release(block), is_named) {
            (true, true) => self.shelf.keep(block),
            (true, false) => self.pool.recycle(block),
            (false, _) => {}
        }
    }

    /// A block for one holder; the page that had to give it up forgets it.
    fn take(&mut self, class: usize, prefix: &mut Prefix) -> Option<BlockId> {
        if self.pool.free() == 0 {
            let block = self.shelf.least()?;
            let page = self.shelf.page_of(block).expect("kept blocks have pages");
            prefix.page_mut(page).blocks[class] = BlockId::NONE;
            self.forget(block);
        }
        self.pool.take()
    }

    /// The page of a block without holders does not name it any more.
    fn forget(&mut self, block: BlockId) {
        self.shelf.remove(block);
        self.pool.recycle(block);
    }
}

impl Kv {
    /// Memory for these classes, the first of which is full.
    pub(crate) fn new(classes: &[KvClass], blocks: &[u32]) -> Self {
        let trailing = classes.iter().zip(blocks).skip(1).map(|(class, blocks)| Trailing {
            pool: Pool::new(*blocks),
            shelf: Shelf::new(*blocks),
            span: Span {
                block_tokens: class.block_tokens,
                tokens: match class.kind {
                    KvKind::Window { tokens } => tokens,
                    _ => u32::MAX,
                },
            },
        });
        Self {
            block_tokens: classes[0].block_tokens,
            pool: Pool::new(blocks[0]),
            trailing: trailing.collect(),
            prefix: Prefix::new(blocks[0]),
            changes: Vec::new(),
        }
    }

    pub(crate) fn table(&self) -> Table {
        Table::new(self.trailing.len())
    }

    pub(crate) fn total(&self) -> u32 {
        self.pool.total()
    }

    /// Pages that only the prefix tree keeps.
    pub(crate) fn cached(&self) -> u32 {
        self.prefix.unheld().min(self.total() - self.used())
    }

    /// Pages that sequences hold, or as large a part of the pages as the part that they hold of the fullest class.
    pub(crate) fn used(&self) -> u32 {
        let total = self.total();
        let full = total - self.pool.free() - self.prefix.unheld();
        let trailing = self.trailing.iter().map(|class| {
            let held = class.pool.total() - class.pool.free() - class.shelf.kept();
            (u64::from(held) * u64::from(total)).div_ceil(u64::from(class.pool.total())) as u32
        });
        trailing.fold(full, u32::max)
    }

    /// The first page of each class that is read from `position` on.
    pub(crate) fn first_pages(&self, position: u32) -> impl Iterator<Item = u32> {
        std::iter::once(0).chain(self.trailing.iter().map(move |class| class.span.first(position)))
    }

    /// How many of these pages can be used by a sequence that has the first `from` of them. It goes on right behind them,
    /// or at `reader` if that is later.
    pub(crate) fn usable(&self, hashes: &[BlockHash], from: u32, reader: u32) -> u32 {
        let known = hashes[from as usize..].iter().map_while(|hash| self.prefix.find(*hash));
        let here = known.map(|page| page.blocks[1..].iter().map(|block| *block != BlockId::NONE));
        self.reachable(from, reader, here)
    }

    /// The same for pages of which it is known whether each trailing class has its block.
    pub(crate) fn reachable(
        &self,
        from: u32,
        reader: u32,
        pages: impl Iterator<Item = impl Iterator<Item = bool>>,
    ) -> u32 {
        let position = |end: u32| (end * self.block_tokens).max(reader);
        // Of each class: how many pages in a row, up to the one looked at, have blocks.
        let first = self.trailing.iter().map(|class| class.span.first(position(from)));
        let mut runs: Vec<u32> = first.map(|first| from.saturating_sub(first)).collect();
        let mut usable = from;
        for (end, here) in (from + 1..).zip(pages) {
            let mut suffices = true;
            for ((run, class), is_here) in runs.iter_mut().zip(&self.trailing).zip(here) {
                *run = if is_here { *run + 1 } else { 0 };
                suffices &= *run >= end.saturating_sub(class.span.first(position(end)));
            }
            if suffices {
                usable = end;
            }
        }
        usable
    }

    /// Whether a table of `pages` pages that begins with these found ones can be opened.
    pub(crate) fn fits(&self, found: &[BlockHash], pages: u32, reader: u32) -> bool {
        // Found blocks without holders count as available, but can not be evicted any more once they are held.
        let found_pages = || found.iter().filter_map(|hash| self.prefix.find(*hash));
        let unheld = found_pages().filter(|page| !self.pool.is_held(page.blocks[0])).count() as u32;
        let available = self.pool.free() + self.prefix.unheld() - unheld;
        let found_len = found.len() as u32;
        if pages - found_len > available {
            return false;
        }
        let position = (found_len * self.block_tokens).max(reader);
        (1..).zip(&self.trailing).all(|(index, class)| {
            let first = class.span.first(position);
            let end = class.span.reserved(first, pages);
            let read = found_pages().skip(first as usize).map(|page| page.blocks[index]);
            let unheld = read.filter(|block| !class.pool.is_held(*block)).count() as u32;
            let available = class.pool.free() + class.shelf.kept() - unheld;
            end.saturating_sub(first.max(found_len)) <= available
        })
    }

    /// Fills an empty table: found pages first, then new ones. The caller asked `fits`.
    pub(crate) fn open(&mut self, table: &mut Table, found: &[BlockHash], pages: u32, reader: u32) {
        let found_len = found.len() as u32;
        let position = (found_len * self.block_tokens).max(reader);
        for hash in found {
            let key = self.hold(*hash).expect("found pages are in the tree");
            table.full.push(key);
        }
        self.hold_read(table, 0, position);
        let filled = self.reach(table, pages, 0) && self.reserve(table);
        assert!(filled, "a table that fits can be filled");
    }

    /// Holds the trailing blocks of known pages from page `from` on that are read from `position` on.
    fn hold_read(&mut self, table: &mut Table, from: u32, position: u32) {
        let end = (position / self.block_tokens).min(table.pages());
        self.pass(table, position);
        for (index, (class, column)) in self.trailing.iter_mut().zip(&mut table.trailing).enumerate() {
            for page in from.max(column.first)..end {
                let block = self.prefix.page(table.full[page as usize]).blocks[index + 1];
                class.hold(block);
                let own = column.set(page, block);
                if own != BlockId::NONE {
                    class.release(own, false);
                }
            }
            column.shared_until = column.shared_until.max(end);
        }
    }

    /// Gives back the trailing blocks that are not read from `position` on.
    fn pass(&mut self, table: &mut Table, position: u32) {
        for (class, column) in self.trailing.iter_mut().zip(&mut table.trailing) {
            let shared_until = column.shared_until;
            for (page, block) in column.pass(class.span.first(position)) {
                class.release(block, page < shared_until);
            }
        }
    }

    /// Takes blocks until a table has all that a sequence of its pages keeps; false if there are not enough.
    fn reserve(&mut self, table: &mut Table) -> bool {
        let pages = table.pages();
        let mut has_all = true;
        for (index, (class, column)) in self.trailing.iter_mut().zip(&mut table.trailing).enumerate() {
            let end = class.span.reserved(column.first, pages);
            while column.len() < end {
                let Some(block) = class.take(index + 1, &mut self.prefix) else {
                    has_all = false;
                    break;
                };
                column.blocks.push(block);
            }
        }
        has_all
    }

    /// Gives back what is not read from `position` on, and takes what a sequence keeps instead, as far as there are blocks.
    pub(crate) fn slide(&mut self, table: &mut Table, position: u32) {
        self.pass(table, position);
        self.reserve(table);
    }

    /// Adds blocks until a table has `pages` pages of class 0 and trailing blocks up to page `trailing`; false if there are
    /// not enough.
    pub(crate) fn reach(&mut self, table: &mut Table, pages: u32, trailing: u32) -> bool {
        while table.pages() < pages {
            if self.pool.free() == 0 && !self.evict() {
                return false;
            }
            let block = self.pool.take().expect("a block is free or was freed");
            table.full.push(block);
        }
        self.cover(table, trailing) >= trailing
    }

    /// Adds trailing blocks up to page `end` as far as there are blocks; says up to which page all classes have them.
    pub(crate) fn cover(&mut self, table: &mut Table, end: u32) -> u32 {
        let mut covered = end;
        for (index, (class, column)) in self.trailing.iter_mut().zip(&mut table.trailing).enumerate() {
            while column.len() < end {
                let Some(block) = class.take(index + 1, &mut self.prefix) else {
                    break;
                };
                column.blocks.push(block);
            }
            covered = covered.min(column.len());
        }
        covered
    }

    /// Whether a table can give back what is not read from `position` on and have trailing blocks up to page `end`.
    pub(crate) fn can_move(&self, table: &Table, position: u32, end: u32) -> bool {
        self.trailing.iter().zip(&table.trailing).all(|(class, column)| {
            let first = class.span.first(position);
            let passed = (column.first..first.min(column.len())).map(|page| column.block(page));
            let freed = passed
                .filter(|block| class.pool.holders()[block.0 as usize] == 1)
                .count() as u32;
            let needed = end.saturating_sub(column.len().max(first));
            needed <= class.pool.free() + class.shelf.kept() + freed
        })
    }

    fn evict(&mut self) -> bool {
        let Some(page) = self.prefix.evict() else { return false };
        self.pool.recycle(page.blocks[0]);
        for (class, block) in self.trailing.iter_mut().zip(&page.blocks[1..]) {
            if *block != BlockId::NONE {
                class.forget(*block);
            }
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
        if let Some(key) = self.hold(hash) {
            self.replace_full(table, page, key);
            self.merge(table, page, key);
            return;
        }
        let blocks: Vec<BlockId> = table.page(page).collect();
        for (class, block) in self.trailing.iter_mut().zip(&blocks[1..]) {
            if *block != BlockId::NONE {
                class.shelf.add(*block, blocks[0]);
            }
        }
        if self.prefix.insert(hash, parent, blocks) {
            // Two prompts part here.
            for column in &mut table.trailing {
                column.shared_until = column.shared_until.max(page);
            }
        }
        self.changes.push(Change::Stored(hash));
    }

    /// The known page gets the trailing blocks that it has lost; the table gets those that both have.
    fn merge(&mut self, table: &mut Table, page: u32, key: BlockId) {
        let known = &mut self.prefix.page_mut(key).blocks[1..];
        for ((class, column), known) in self.trailing.iter_mut().zip(&mut table.trailing).zip(known) {
            let own = column.block(page);
            if own == BlockId::NONE {
                continue;
            }
            if *known == BlockId::NONE {
                class.shelf.add(own, key);
                *known = own;
            } else {
                class.hold(*known);
                column.set(page, *known);
                class.release(own, false);
            }
        }
    }

    /// Replaces the pages `from..end` of a table, which are not computed, by those known under these hashes. The caller
    /// knows that they are usable.
    pub(crate) fn take_over(&mut self, table: &mut Table, hashes: &[BlockHash], from: u32, end: u32) {
        for page in from..end {
            let key = self.hold(hashes[page as usize]).expect("usable pages are in the tree");
            self.replace_full(table, page, key);
        }
        self.hold_read(table, from, end * self.block_tokens);
        self.reserve(table);
    }

    fn replace_full(&mut self, table: &mut Table, page: u32, key: BlockId) {
        let own = std::mem::replace(&mut table.full[page as usize], key);
        self.release_full(own);
    }

    /// Adds a holder to the class-0 block of a known page.
    fn hold(&mut self, hash: BlockHash) -> Option<BlockId> {
        let key = self.prefix.find(hash)?.blocks[0];
        if !self.pool.is_held(key) {
            self.prefix.hold(key);
        }
        self.pool.retain(key);
        Some(key)
    }

    /// Gives all blocks of a table back; known pages stay findable.
    pub(crate) fn close(&mut self, table: &mut Table) {
        for (class, column) in self.trailing.iter_mut().zip(&mut table.trailing) {
            // From the end, so that what is read from further back is younger.
            for block in column.blocks.drain(column.first as usize..).rev() {
                class.release(block, true);
            }
            *column = crate::table::Column::default();
        }
        // From the end, so that a page is never held without its parents.
        for block in std::mem::take(&mut table.full).into_iter().rev() {
            self.release_full(block);
        }
    }

    fn release_full(&mut self, block: BlockId) {
        let is_known = self.prefix.contains(block);
        match (self.pool.release(block), is_known) {
            (true, true) => self.prefix.leave(block),
            (true, false) => self.pool.recycle(block),
            (false, _) => {}
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
}
