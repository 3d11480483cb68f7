//! How much state of sequences fits into a piece of memory: blocks of each class, and the longest sequence.
//!
//! Classes that keep whole sequences have the same number of blocks. Window classes get what all running sequences can read,
//! as much again for the ends of prefixes that are kept for reuse, and one step; never more than half of the memory.

use cluster_topologies::schema::KvDtype;
use serde::{Deserialize, Serialize};

use crate::{KvClass, KvKind};

/// What is asked of the memory for pages of one rank.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pool {
    pub(crate) block_tokens: u32,
    pub(crate) dtype: KvDtype,
    pub(crate) tensor: u32,
    pub(crate) running_max: u32,
    pub(crate) step_tokens: u32,
    pub(crate) prefix_reuse: bool,
}

/// The blocks of one class on each rank of an instance.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KvRow {
    /// How the class grows.
    pub kind: KvKind,
    /// How many blocks.
    pub blocks: u32,
    /// Bytes of a block on a rank.
    pub block_bytes: u64,
}

impl KvRow {
    /// All blocks of the class.
    pub const fn bytes(&self) -> u64 {
        self.blocks as u64 * self.block_bytes
    }
}

impl Pool {
    /// The blocks of each class that `memory` holds.
    pub(crate) fn fill(&self, classes: &[KvClass], memory: u64) -> Vec<KvRow> {
        let mut rows: Vec<KvRow> = classes.iter().map(|class| self.row(class)).collect();
        self.shrink_trailing(&mut rows, memory / 2);
        let whole = whole_blocks(&rows, memory);
        // No class needs more blocks than there are tokens for; what that sets free is for whole sequences.
        for row in rows.iter_mut().filter(|row| is_trailing(row)) {
            row.blocks = row.blocks.min(whole.max(1));
        }
        let whole = whole_blocks(&rows, memory);
        for row in rows.iter_mut().filter(|row| !is_trailing(row)) {
            row.blocks = whole;
        }
        rows
    }

    fn row(&self, class: &KvClass) -> KvRow {
        let sequences = if self.prefix_reuse {
            2 * self.running_max
        } else {
            self.running_max
        };
        let blocks = match class.kind {
            KvKind::Window { tokens } => {
                let read = tokens.div_ceil(self.block_tokens) + 1;
                sequences.saturating_mul(read) + self.step_tokens.div_ceil(self.block_tokens)
            }
            KvKind::Pending => self.running_max,
            KvKind::Full | KvKind::Compressed { .. } => 0,
        };
        KvRow {
            kind: class.kind,
            blocks,
            block_bytes: class.block_bytes(self.block_tokens, self.dtype, self.tensor),
        }
    }

    /// Lets sequences wait rather than leave no room for whole ones.
    fn shrink_trailing(&self, rows: &mut [KvRow], most: u64) {
        let wanted: u64 = rows.iter().map(KvRow::bytes).sum();
        if wanted <= most {
            return;
        }
        let scale = most as f64 / wanted as f64;
        for row in rows {
            row.blocks = (f64::from(row.blocks) * scale) as u32;
        }
    }
}

const fn is_trailing(row: &KvRow) -> bool {
    matches!(row.kind, KvKind::Window { .. } | KvKind::Pending)
}

/// Blocks of whole sequences that fit beside the other classes.
fn whole_blocks(rows: &[KvRow], memory: u64) -> u32 {
    let (trailing, whole): (Vec<&KvRow>, Vec<&KvRow>) = rows.iter().partition(|row| is_trailing(row));
    let taken: u64 = trailing.iter().map(|row| row.bytes()).sum();
    let block: u64 = whole.iter().map(|row| row.block_bytes).sum();
    u32::try_from(memory.saturating_sub(taken) / block.max(1)).unwrap_or(u32::MAX)
}
