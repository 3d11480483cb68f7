//! The invariants of the memory, proved by counting: for tests.

use super::{Kv, Trailing};
use crate::{BlockId, pool::Pool, table::Table};

impl Kv {
    /// Proves that every block is free, held or kept, exactly once, and held as often as tables name it.
    pub(crate) fn check<'a>(&self, tables: impl Iterator<Item = &'a Table>) -> Result<(), String> {
        let tables: Vec<&Table> = tables.collect();
        let named = tables.iter().flat_map(|table| &table.full).copied();
        let kept = self.prefix.iter().map(|page| page.blocks[0]);
        let kept = kept.filter(|block| !self.pool.is_held(*block));
        check_pool(&self.pool, named, kept).map_err(|problem| format!("class 0: {problem}"))?;
        self.prefix.check(|block| self.pool.is_held(block))?;
        for (index, class) in self.trailing.iter().enumerate() {
            let columns = || tables.iter().map(|table| &table.trailing[index]);
            columns().try_for_each(crate::table::Column::check)?;
            let named = columns()
                .flat_map(|column| &column.blocks[column.first as usize..])
                .copied();
            let kept = class
                .shelf
                .iter()
                .filter(|(.., is_kept)| *is_kept)
                .map(|(block, ..)| block);
            let outcome = check_pool(&class.pool, named, kept).and_then(|()| self.check_shelf(index + 1, class));
            outcome.map_err(|problem| format!("class {}: {problem}", index + 1))?;
        }
        Ok(())
    }

    /// The shelf and the pages agree on which page names which block.
    fn check_shelf(&self, class: usize, trailing: &Trailing) -> Result<(), String> {
        for (block, page, is_kept) in trailing.shelf.iter() {
            if !self.prefix.contains(page) || self.prefix.page(page).blocks[class] != block {
                return Err(format!("page {} does not name block {}", page.0, block.0));
            }
            if is_kept == trailing.pool.is_held(block) {
                return Err(format!("the shelf and the pool differ on who holds block {}", block.0));
            }
        }
        let on_pages = self
            .prefix
            .iter()
            .filter(|page| page.blocks[class] != BlockId::NONE)
            .count();
        let on_shelf = trailing.shelf.iter().count();
        if on_pages != on_shelf {
            return Err(format!("pages name {on_pages} blocks, {on_shelf} are on the shelf"));
        }
        Ok(())
    }
}

fn check_pool(
    pool: &Pool,
    named: impl Iterator<Item = BlockId>,
    kept: impl Iterator<Item = BlockId>,
) -> Result<(), String> {
    let mut names = vec![0; pool.total() as usize];
    named.for_each(|block| names[block.0 as usize] += 1);
    if names != pool.holders() {
        let holders = pool.holders();
        return Err(format!(
            "tables name blocks {names:?} times, the pool counts {holders:?}"
        ));
    }
    let mut places: Vec<u32> = names.iter().map(|holders| u32::from(*holders > 0)).collect();
    pool.free_list().iter().for_each(|block| places[block.0 as usize] += 1);
    kept.for_each(|block| places[block.0 as usize] += 1);
    match places.iter().position(|places| *places != 1) {
        Some(block) => Err(format!("block {block} is in {} places", places[block])),
        None => Ok(()),
    }
}
