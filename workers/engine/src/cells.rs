//! Block storage of the models without weights: one word per token position.
//!
//! These models keep all that they know of a sequence in its blocks, and read it back from there. So a wrong table, a stale
//! block or a damaged page changes their answers, as it would with real KV.

use crate::{BlockId, KvClass, KvKind, ModelError};

#[derive(Clone, Debug)]
pub(crate) struct Cells {
    block_tokens: usize,
    words: Vec<u64>,
}

impl Cells {
    pub(crate) fn new(block_tokens: u32) -> Self {
        Self {
            block_tokens: block_tokens as usize,
            words: Vec::new(),
        }
    }

    /// A KV class of such a model.
    pub(crate) fn class(kind: KvKind, block_tokens: u32) -> KvClass {
        KvClass {
            kind,
            block_tokens,
            block_bytes: block_tokens as usize * size_of::<u64>(),
        }
    }

    pub(crate) fn allocate(&mut self, blocks: u32) {
        self.words = vec![0; blocks as usize * self.block_tokens];
    }

    pub(crate) fn write(&mut self, table: &[BlockId], position: u32, word: u64) {
        let place = self.place(table, position);
        self.words[place] = word;
    }

    /// The words of the positions before `end`, in order.
    pub(crate) fn read<'a>(&'a self, table: &'a [BlockId], end: u32) -> impl Iterator<Item = u64> + 'a {
        let blocks = table.iter().flat_map(|block| self.block(*block));
        blocks.take(end as usize).copied()
    }

    /// The word of one position.
    pub(crate) fn word(&self, table: &[BlockId], position: u32) -> u64 {
        self.words[self.place(table, position)]
    }

    fn place(&self, table: &[BlockId], position: u32) -> usize {
        let position = position as usize;
        let block = table[position / self.block_tokens];
        assert_ne!(block, BlockId::NONE, "position {position} was given back");
        block.0 as usize * self.block_tokens + position % self.block_tokens
    }

    fn block(&self, block: BlockId) -> &[u64] {
        let start = block.0 as usize * self.block_tokens;
        &self.words[start..start + self.block_tokens]
    }

    pub(crate) fn export(&self, block: BlockId, out: &mut Vec<u8>) {
        out.extend(self.block(block).iter().flat_map(|word| word.to_le_bytes()));
    }

    pub(crate) fn import(&mut self, block: BlockId, bytes: &[u8]) -> Result<(), ModelError> {
        let expected = self.block_tokens * size_of::<u64>();
        let (words, rest) = bytes.as_chunks::<8>();
        if words.len() != self.block_tokens || !rest.is_empty() {
            let got = bytes.len();
            return Err(ModelError::PageSize { expected, got });
        }
        let start = block.0 as usize * self.block_tokens;
        for (cell, word) in self.words[start..].iter_mut().zip(words) {
            *cell = u64::from_le_bytes(*word);
        }
        Ok(())
    }
}
