//! Paged storage of keys and values.
//!
//! ```text
//!   block:  layer 0                                        layer 1 …
//!           head 0: keys [head_dim][block_tokens]          (a key is a column: sixteen keys are one vector)
//!                   values [block_tokens][padded head_dim] (a value is a row of whole vectors)
//!           head 1: …
//! ```
//! All bytes of a block lie together, so exporting or importing it is one copy. The store does not know which block
//! belongs to which sequence: callers bring tables of block ids.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use crate::memory::AlignedBytes;
use crate::{KernelError, reference};

/// Keys that attention reads as one vector; blocks hold a multiple of it and values are padded to it.
pub(crate) const LANES: usize = 16;

/// How keys and values are stored.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[expect(missing_docs, reason = "the names are the formats' own")]
pub enum KvDType {
    F32,
    F16,
    BF16,
    /// E4M3 as it is, without a scale: numbers past 448 in size become 448.
    Fp8,
}

impl KvDType {
    /// Bytes of a number.
    pub const fn bytes(self) -> usize {
        match self {
            KvDType::F32 => 4,
            KvDType::F16 | KvDType::BF16 => 2,
            KvDType::Fp8 => 1,
        }
    }
}

/// The shape of a store's blocks. Equal shapes have equal layouts: blocks can be exchanged.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct KvShape {
    /// Layers that keep keys and values.
    pub layers: usize,
    /// Key/value heads of a layer.
    pub kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Positions of a block, a multiple of 16.
    pub block_tokens: usize,
    /// How numbers are stored.
    pub dtype: KvDType,
}

impl KvShape {
    /// Bytes of a block over all its layers.
    pub const fn block_bytes(&self) -> usize {
        self.layers * self.kv_heads * self.head_bytes()
    }

    /// Width of a stored value.
    pub(crate) const fn value_dim(&self) -> usize {
        self.head_dim.next_multiple_of(LANES)
    }

    /// Bytes of a block's keys of one head of one layer.
    pub(crate) const fn keys_bytes(&self) -> usize {
        self.head_dim * self.block_tokens * self.dtype.bytes()
    }

    /// Bytes of a block's keys and values of one head of one layer.
    const fn head_bytes(&self) -> usize {
        self.keys_bytes() + self.value_dim() * self.block_tokens * self.dtype.bytes()
    }

    fn check(&self) -> Result<(), KernelError> {
        let fields = [
            ("layers", self.layers),
            ("kv_heads", self.kv_heads),
            ("head_dim", self.head_dim),
            ("block_tokens", self.block_tokens),
        ];
        if let Some((field, got)) = fields.into_iter().find(|(_, got)| *got == 0) {
            let rule = "more than zero";
            return Err(KernelError::KvShape { field, got, rule });
        }
        if !self.block_tokens.is_multiple_of(LANES) {
            let (field, got, rule) = ("block_tokens", self.block_tokens, "a multiple of 16");
            return Err(KernelError::KvShape { field, got, rule });
        }
        Ok(())
    }
}

/// Blocks of keys and values, all zero at first.
pub struct KvStore {
    shape: KvShape,
    blocks: usize,
    memory: AlignedBytes,
}

impl KvStore {
    /// Makes `blocks` blocks. Memory that is never written stays unbacked by the system.
    pub fn new(shape: KvShape, blocks: usize) -> Result<Self, KernelError> {
        shape.check()?;
        let memory = AlignedBytes::zeroed(shape.block_bytes() * blocks)?;
        Ok(Self { shape, blocks, memory })
    }

    /// The shape of its blocks.
    pub fn shape(&self) -> &KvShape {
        &self.shape
    }

    /// How many blocks there are.
    pub fn blocks(&self) -> usize {
        self.blocks
    }

    /// Bytes of a block, as exported.
    pub fn block_bytes(&self) -> usize {
        self.shape.block_bytes()
    }

    /// A block's bytes, to be exported.
    ///
    /// # Panics
    /// When there is no such block.
    pub fn block(&self, block: u32) -> &[u8] {
        let span = self.span(block);
        &self.memory[span]
    }

    /// A block's bytes, to be overwritten.
    ///
    /// # Panics
    /// When there is no such block.
    pub fn block_mut(&mut self, block: u32) -> &mut [u8] {
        let span = self.span(block);
        &mut self.memory[span]
    }

    /// Overwrites a block with exported bytes.
    pub fn import(&mut self, block: u32, bytes: &[u8]) -> Result<(), KernelError> {
        let expected = self.block_bytes();
        if bytes.len() != expected {
            let got = bytes.len();
            return Err(KernelError::PageSize { expected, got });
        }
        self.block_mut(block).copy_from_slice(bytes);
        Ok(())
    }

    /// Writes one layer's keys and values `[n, kv_heads, head_dim]` of the consecutive positions from `start` of the
    /// sequence whose blocks are `table`.
    ///
    /// # Panics
    /// When the table is too short, names a missing block, or the slices are not whole rows of equal number.
    pub fn write(&mut self, layer: usize, table: &[u32], start: usize, keys: &[f32], values: &[f32]) {
        let shape = self.shape;
        let width = shape.kv_heads * shape.head_dim;
        assert!(layer < shape.layers, "layer {layer} of {}", shape.layers);
        assert_eq!(keys.len(), values.len(), "a value for every key");
        assert_eq!(keys.len() % width, 0, "whole rows of {width}");
        let end = start + keys.len() / width;
        let mut position = start;
        while position < end {
            let slot = position % shape.block_tokens;
            let tokens = (shape.block_tokens - slot).min(end - position);
            let rows = (position - start) * width..(position - start + tokens) * width;
            let block = table[position / shape.block_tokens];
            self.write_run(Run { layer, block, slot }, &keys[rows.clone()], &values[rows]);
            position += tokens;
        }
    }

    /// Writes rows that lie in one block.
    fn write_run(&mut self, run: Run, keys: &[f32], values: &[f32]) {
        let shape = self.shape;
        for head in 0..shape.kv_heads {
            let at = self.head_offset(run.layer, run.block, head);
            let (to_keys, to_values) = self.memory[at..at + shape.head_bytes()].split_at_mut(shape.keys_bytes());
            let mut target = Target {
                shape,
                head,
                slot: run.slot,
                keys: to_keys,
                values: to_values,
            };
            match shape.dtype {
                KvDType::F32 => target.write(keys, values, encode_f32),
                KvDType::F16 => target.write(keys, values, encode_f16),
                KvDType::BF16 => target.write(keys, values, encode_bf16),
                KvDType::Fp8 => target.write(keys, values, encode_fp8),
            }
        }
    }

    /// Where the keys of a head start, followed by its values.
    fn head_offset(&self, layer: usize, block: u32, head: usize) -> usize {
        self.span(block).start + (layer * self.shape.kv_heads + head) * self.shape.head_bytes()
    }

    /// The keys and the values of one head of one layer in a block.
    pub(crate) fn head(&self, layer: usize, block: u32, head: usize) -> (&[u8], &[u8]) {
        let at = self.head_offset(layer, block, head);
        self.memory[at..at + self.shape.head_bytes()].split_at(self.shape.keys_bytes())
    }

    /// The key at a position, as stored.
    pub(crate) fn key(&self, layer: usize, table: &[u32], position: usize, head: usize) -> Vec<f32> {
        let tokens = self.shape.block_tokens;
        let (keys, _) = self.head(layer, table[position / tokens], head);
        let slot = position % tokens;
        (0..self.shape.head_dim)
            .map(|i| self.number(keys, i * tokens + slot))
            .collect()
    }

    /// The value at a position, as stored.
    pub(crate) fn value(&self, layer: usize, table: &[u32], position: usize, head: usize) -> Vec<f32> {
        let tokens = self.shape.block_tokens;
        let (_, values) = self.head(layer, table[position / tokens], head);
        let first = position % tokens * self.shape.value_dim();
        (0..self.shape.head_dim)
            .map(|i| self.number(values, first + i))
            .collect()
    }

    fn number(&self, bytes: &[u8], index: usize) -> f32 {
        let size = self.shape.dtype.bytes();
        let b = &bytes[index * size..(index + 1) * size];
        match self.shape.dtype {
            KvDType::F32 => f32::from_le_bytes([b[0], b[1], b[2], b[3]]),
            KvDType::F16 => f16::from_le_bytes([b[0], b[1]]).to_f32(),
            KvDType::BF16 => bf16::from_le_bytes([b[0], b[1]]).to_f32(),
            KvDType::Fp8 => reference::decode_e4m3(b[0]),
        }
    }

    fn span(&self, block: u32) -> std::ops::Range<usize> {
        let block = block as usize;
        assert!(block < self.blocks, "block {block} of {}", self.blocks);
        let bytes = self.block_bytes();
        block * bytes..(block + 1) * bytes
    }
}

/// Consecutive slots of one block.
#[derive(Clone, Copy)]
struct Run {
    layer: usize,
    block: u32,
    slot: usize,
}

/// One head's part of a block.
struct Target<'a> {
    shape: KvShape,
    head: usize,
    slot: usize,
    keys: &'a mut [u8],
    values: &'a mut [u8],
}

impl Target<'_> {
    fn write<const BYTES: usize>(&mut self, keys: &[f32], values: &[f32], encode: fn(&[f32], &mut [[u8; BYTES]])) {
        let KvShape {
            head_dim,
            kv_heads,
            block_tokens,
            ..
        } = self.shape;
        let (width, first) = (kv_heads * head_dim, self.head * head_dim);
        let column = &mut self.keys.as_chunks_mut::<BYTES>().0[self.slot..];
        let mut key = vec![[0; BYTES]; head_dim];
        for (token, row) in keys.chunks_exact(width).enumerate() {
            encode(&row[first..first + head_dim], &mut key);
            for (number, to) in key.iter().zip(column[token..].iter_mut().step_by(block_tokens)) {
                *to = *number;
            }
        }
        let value_dim = self.shape.value_dim();
        let rows = &mut self.values.as_chunks_mut::<BYTES>().0[self.slot * value_dim..];
        for (to, row) in rows.chunks_exact_mut(value_dim).zip(values.chunks_exact(width)) {
            encode(&row[first..first + head_dim], &mut to[..head_dim]);
        }
    }
}

fn encode_f32(x: &[f32], to: &mut [[u8; 4]]) {
    for (to, x) in to.iter_mut().zip(x) {
        *to = x.to_le_bytes();
    }
}

/// Numbers that are converted at once, so that the conversion's own look at the processor counts little.
const CONVERTED: usize = 64;

fn encode_f16(x: &[f32], to: &mut [[u8; 2]]) {
    for (to, x) in to.chunks_mut(CONVERTED).zip(x.chunks(CONVERTED)) {
        let mut halves = [f16::ZERO; CONVERTED];
        halves[..x.len()].convert_from_f32_slice(x);
        to.iter_mut()
            .zip(halves)
            .for_each(|(to, half)| *to = half.to_le_bytes());
    }
}

fn encode_bf16(x: &[f32], to: &mut [[u8; 2]]) {
    for (to, x) in to.chunks_mut(CONVERTED).zip(x.chunks(CONVERTED)) {
        let mut halves = [bf16::ZERO; CONVERTED];
        halves[..x.len()].convert_from_f32_slice(x);
        to.iter_mut()
            .zip(halves)
            .for_each(|(to, half)| *to = half.to_le_bytes());
    }
}

fn encode_fp8(x: &[f32], to: &mut [[u8; 1]]) {
    for (to, x) in to.iter_mut().zip(x) {
        *to = [reference::encode_e4m3(*x)];
    }
}

#[cfg(test)]
mod tests;
