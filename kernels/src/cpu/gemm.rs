//! Matrix products `out[n, rows] = x[n, cols] · wᵀ` over packed weights.
//!
//! ```text
//!   few tokens:   for each panel: for each block: unpack in registers, multiply with every token
//!   many tokens:  for each run of tokens that fits the L2 cache:
//!                   for each pair of panels: unpack once to scratch, then tiles of 2 panels x 4 tokens
//! ```
//! A product is cut into items (run of tokens x some panels) that threads take from the pool.
//!
//! Cost of one q4_1 panel-block (16 rows x 32 columns): 320 bytes read once, 8 `vpdpbusd` and 4 float operations a token.
//! The measured figures are in `examples/bench.rs`'s output and in `docs/` of the repository, with the machine.
#![expect(unsafe_code, reason = "threads write disjoint parts of one output")]

mod quantize;
mod source;
mod tile;

use std::cell::Cell;
use std::marker::PhantomData;
use std::ops::Range;

use super::lanes::{Kernel, LANES, Lanes};
use super::{Cpu, Isa};
use crate::matrix::layout::{Format, PANEL, with_format};
use crate::{Arithmetic, DType, Matrix};
use quantize::Line;
use source::{Packed, Unpacked};
use tile::Element;

/// Up to so many tokens, panels are unpacked in registers for each tile.
const FEW: usize = 8;
/// Bytes of activations that a run of tokens may have: half of a common L2 cache.
const RUN_BYTES: usize = 512 << 10;
/// Bytes of weights of an item for few tokens: half a microsecond's work.
const ITEM_BYTES: usize = 24 << 10;

/// One matrix product of a call.
#[derive(Clone, Copy)]
struct Product<'a> {
    matrix: &'a Matrix,
    x: &'a [f32],
    lines: &'a [Line],
    out: Out,
}

/// Where a product goes. Items write disjoint parts of it.
#[derive(Clone, Copy)]
struct Out {
    start: *mut f32,
    rows: usize,
}

// SAFETY: the memory is borrowed mutably for the whole call, and every (token, panel) is written by one item.
unsafe impl Sync for Out {}
// SAFETY: as above.
unsafe impl Send for Out {}

/// A part of a product, computed by one thread.
#[derive(Clone)]
struct Item<'a> {
    product: Product<'a>,
    tokens: Range<usize>,
    panels: Range<usize>,
}

impl Cpu {
    /// Multiplies `n` rows `x[n, cols]` with every matrix: `out[n, rows] = x · wᵀ`. Matrices that share an input are best
    /// given together: it is quantized once, and all of them are one job for the pool.
    ///
    /// # Panics
    /// When a slice does not fit its shape.
    pub fn matmul(&self, x: &[f32], n: usize, products: &mut [(&Matrix, &mut [f32])]) {
        for (matrix, out) in products.iter() {
            assert_eq!(x.len(), n * matrix.cols(), "x is [{n}, {}]", matrix.cols());
            assert_eq!(out.len(), n * matrix.rows(), "out is [{n}, {}]", matrix.rows());
        }
        let mut lines = LINES.take();
        if products.iter().any(|(matrix, _)| wants_lines(matrix)) {
            quantize_rows(self, x, n, &mut lines);
        }
        let mut items = Vec::new();
        for (matrix, out) in products.iter_mut() {
            let out = Out {
                start: out.as_mut_ptr(),
                rows: matrix.rows(),
            };
            cut(
                Product {
                    matrix,
                    x,
                    lines: &lines,
                    out,
                },
                n,
                &mut items,
            );
        }
        self.pool().for_each(items.len(), &|index| items[index].run(self.isa()));
        LINES.set(lines);
    }
}

fn wants_lines(matrix: &Matrix) -> bool {
    matrix.arithmetic() == Arithmetic::Int8 && !matrix.dtype().is_float()
}

/// Cuts a product into items: runs of tokens, and within them panels.
fn cut<'a>(product: Product<'a>, n: usize, items: &mut Vec<Item<'a>>) {
    let (panels, cols) = (product.matrix.panels(), product.matrix.cols());
    let token_bytes = if wants_lines(product.matrix) {
        cols / quantize::BLOCK * size_of::<Line>()
    } else {
        cols * 4
    };
    let run = (RUN_BYTES / token_bytes.max(1) / FEW * FEW).clamp(2 * FEW, 256);
    let panels_each = match n {
        0..=FEW => (ITEM_BYTES / product.matrix.parts().bytes.max(1) / 4 * 4).max(4),
        _ => 4,
    };
    for first_token in (0..n).step_by(run) {
        for first in (0..panels).step_by(panels_each) {
            items.push(Item {
                product,
                tokens: first_token..(first_token + run).min(n),
                panels: first..(first + panels_each).min(panels),
            });
        }
    }
}

/// Rounds `n` rows to 8 bits, row after row.
fn quantize_rows(cpu: &Cpu, x: &[f32], n: usize, lines: &mut Vec<Line>) {
    /// Blocks of an item: some microseconds' work.
    const EACH: usize = 1024;
    let blocks = x.as_chunks::<{ quantize::BLOCK }>().0;
    debug_assert!(
        n == 0 || blocks.len() * quantize::BLOCK == x.len(),
        "quantized rows are whole blocks"
    );
    lines.resize(blocks.len(), Line::ZERO);
    let isa = cpu.isa();
    if blocks.len() <= EACH {
        return isa.run(QuantizeBlocks { blocks, lines });
    }
    let jobs: Vec<_> = blocks
        .chunks(EACH)
        .zip(lines.chunks_mut(EACH))
        .map(std::sync::Mutex::new)
        .collect();
    cpu.pool().for_each(jobs.len(), &|index| {
        let mut job = jobs[index].try_lock().expect("every chunk is taken by one thread");
        let (blocks, lines) = &mut *job;
        isa.run(QuantizeBlocks { blocks, lines });
    });
}

struct QuantizeBlocks<'a> {
    blocks: &'a [[f32; quantize::BLOCK]],
    lines: &'a mut [Line],
}

impl Kernel for QuantizeBlocks<'_> {
    #[inline(always)]
    fn run<L: Lanes>(self, _lanes: L) {
        for (line, block) in self.lines.iter_mut().zip(self.blocks) {
            *line = quantize::quantize(block);
        }
    }
}

impl Item<'_> {
    fn run(&self, isa: Isa) {
        let matrix = self.product.matrix;
        match (matrix.dtype(), matrix.arithmetic()) {
            (DType::F32, _) => isa.run(FloatItem::<tile::F32>(self, PhantomData)),
            (DType::F16, _) => isa.run(FloatItem::<tile::F16>(self, PhantomData)),
            (DType::BF16, _) => isa.run(FloatItem::<tile::BF16>(self, PhantomData)),
            (dtype, Arithmetic::Int8) => {
                with_format!(dtype, F => isa.run(IntegerItem::<F>(self, PhantomData)), unreachable!("floats are above"));
            }
            (dtype, Arithmetic::Exact) => {
                with_format!(dtype, F => isa.run(ExactItem::<F>(self, PhantomData)), unreachable!("floats are above"));
            }
        }
    }

    /// Writes a tile's sums. The last panel may have fewer rows than lanes.
    #[inline(always)]
    fn write<L: Lanes, const P: usize, const T: usize>(&self, l: L, panel: usize, token: usize, sums: [[L::F; T]; P]) {
        let Out { start, rows } = self.product.out;
        for (panel, sums) in (panel..).zip(sums) {
            let room = rows - panel * PANEL;
            for (token, sum) in (token..).zip(sums) {
                // SAFETY: row `panel · 16` of `token` is inside the output, and this item alone writes it.
                let at = unsafe { start.add(token * rows + panel * PANEL) };
                if room >= LANES {
                    // SAFETY: at least sixteen rows follow.
                    unsafe { l.store(at, sum) };
                } else {
                    let mut lanes = [0.0; LANES];
                    // SAFETY: `lanes` has room for sixteen; `room` rows follow in the output.
                    unsafe {
                        l.store(lanes.as_mut_ptr(), sum);
                        std::ptr::copy_nonoverlapping(lanes.as_ptr(), at, room);
                    }
                }
            }
        }
    }

    #[inline(always)]
    fn lines(&self, token: usize) -> *const Line {
        let blocks = self.product.matrix.parts().blocks;
        self.product.lines[token * blocks..(token + 1) * blocks].as_ptr()
    }

    #[inline(always)]
    fn row(&self, token: usize) -> *const f32 {
        let cols = self.product.matrix.cols();
        self.product.x[token * cols..(token + 1) * cols].as_ptr()
    }
}

/// An item over quantized weights and 8-bit activations.
struct IntegerItem<'a, F>(&'a Item<'a>, PhantomData<F>);

impl<F: Format> Kernel for IntegerItem<'_, F> {
    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        let item = self.0;
        if item.tokens.len() <= FEW {
            for panel in item.panels.clone() {
                integer_tiles(l, item, panel, [packed::<F>(item, panel)]);
            }
            return;
        }
        let blocks = item.product.matrix.parts().blocks;
        let bytes = blocks * Unpacked::<F>::BYTES;
        let mut scratch = Scratch::take(2 * bytes);
        let (first, second) = scratch.bytes().split_at_mut(bytes);
        let mut panel = item.panels.start;
        while L::ROOMY && panel + 2 <= item.panels.end {
            let pair = [
                Unpacked::unpack(l, packed::<F>(item, panel), blocks, first),
                Unpacked::unpack(l, packed::<F>(item, panel + 1), blocks, second),
            ];
            integer_tiles(l, item, panel, pair);
            panel += 2;
        }
        for panel in panel..item.panels.end {
            integer_tiles(
                l,
                item,
                panel,
                [Unpacked::unpack(l, packed::<F>(item, panel), blocks, first)],
            );
        }
    }
}

#[inline(always)]
fn packed<'a, F: Format>(item: &Item<'a>, panel: usize) -> Packed<'a, F> {
    let matrix = item.product.matrix;
    Packed::new(matrix.panel(panel), matrix.parts())
}

/// All tokens of an item times some panels.
#[inline(always)]
fn integer_tiles<L: Lanes, S: source::Source, const P: usize>(l: L, item: &Item<'_>, panel: usize, panels: [S; P]) {
    let mut token = item.tokens.start;
    while token < item.tokens.end {
        let left = item.tokens.end - token;
        token += if L::ROOMY && P == 1 && left >= 8 {
            integer_tile::<L, S, P, 8>(l, item, panel, panels, token)
        } else if left >= 4 {
            integer_tile::<L, S, P, 4>(l, item, panel, panels, token)
        } else if left >= 2 {
            integer_tile::<L, S, P, 2>(l, item, panel, panels, token)
        } else {
            integer_tile::<L, S, P, 1>(l, item, panel, panels, token)
        };
    }
}

#[inline(always)]
fn integer_tile<L: Lanes, S: source::Source, const P: usize, const T: usize>(
    l: L,
    item: &Item<'_>,
    panel: usize,
    panels: [S; P],
    token: usize,
) -> usize {
    let tokens = std::array::from_fn(|i| item.lines(token + i));
    // SAFETY: panels and lines have the matrix's blocks.
    let sums = unsafe { tile::integer::<L, S, P, T>(l, panels, tokens, item.product.matrix.parts().blocks) };
    item.write(l, panel, token, sums);
    T
}

/// An item over quantized weights and f32 activations: panels are dequantized to scratch.
struct ExactItem<'a, F>(&'a Item<'a>, PhantomData<F>);

impl<F: Format> Kernel for ExactItem<'_, F> {
    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        let item = self.0;
        let blocks = item.product.matrix.parts().blocks;
        let mut scratch = Scratch::take(item.product.matrix.cols() * PANEL * size_of::<f32>());
        let columns = scratch.bytes().as_mut_ptr();
        for panel in item.panels.clone() {
            // SAFETY: the panel has its blocks and `scratch` room for its columns.
            unsafe { tile::dequantize(l, packed::<F>(item, panel), blocks, columns.cast()) };
            float_tiles::<L, tile::F32, 1>(l, item, panel, [columns.cast_const()]);
        }
    }
}

/// An item over float weights.
struct FloatItem<'a, E>(&'a Item<'a>, PhantomData<E>);

impl<E: Element> Kernel for FloatItem<'_, E> {
    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        let item = self.0;
        let start = |panel: usize| item.product.matrix.panel(panel).as_ptr();
        let mut panel = item.panels.start;
        // A sum is a chain of dependent operations: with few tokens it takes several panels to keep the processor busy.
        while item.tokens.len() <= 2 && panel + 4 <= item.panels.end {
            float_tiles::<L, E, 4>(
                l,
                item,
                panel,
                [start(panel), start(panel + 1), start(panel + 2), start(panel + 3)],
            );
            panel += 4;
        }
        while L::ROOMY && panel + 2 <= item.panels.end {
            float_tiles::<L, E, 2>(l, item, panel, [start(panel), start(panel + 1)]);
            panel += 2;
        }
        for panel in panel..item.panels.end {
            float_tiles::<L, E, 1>(l, item, panel, [start(panel)]);
        }
    }
}

/// All tokens of an item times some panels.
#[inline(always)]
fn float_tiles<L: Lanes, E: Element, const P: usize>(l: L, item: &Item<'_>, panel: usize, panels: [*const u8; P]) {
    let mut token = item.tokens.start;
    while token < item.tokens.end {
        let left = item.tokens.end - token;
        token += if L::ROOMY && P <= 2 && left >= 8 {
            float_tile::<L, E, P, 8>(l, item, panel, panels, token)
        } else if P <= 2 && left >= 4 {
            float_tile::<L, E, P, 4>(l, item, panel, panels, token)
        } else if left >= 2 {
            float_tile::<L, E, P, 2>(l, item, panel, panels, token)
        } else {
            float_tile::<L, E, P, 1>(l, item, panel, panels, token)
        };
    }
}

#[inline(always)]
fn float_tile<L: Lanes, E: Element, const P: usize, const T: usize>(
    l: L,
    item: &Item<'_>,
    panel: usize,
    panels: [*const u8; P],
    token: usize,
) -> usize {
    let tokens = std::array::from_fn(|i| item.row(token + i));
    // SAFETY: panels and rows have the matrix's columns.
    let sums = unsafe { tile::float::<L, E, P, T>(l, panels, tokens, item.product.matrix.cols()) };
    item.write(l, panel, token, sums);
    T
}

thread_local! {
    /// Activations of the call that this thread makes.
    static LINES: Cell<Vec<Line>> = const { Cell::new(Vec::new()) };
    /// Panels that this thread has unpacked.
    static PANELS: Cell<Vec<Line>> = const { Cell::new(Vec::new()) };
}

/// This thread's memory for unpacked panels, kept from item to item.
struct Scratch {
    lines: Vec<Line>,
    len: usize,
}

impl Scratch {
    /// At least `len` bytes.
    fn take(len: usize) -> Self {
        let mut lines = PANELS.take();
        if lines.len() * size_of::<Line>() < len {
            lines.resize(len.div_ceil(size_of::<Line>()), Line::ZERO);
        }
        Self { lines, len }
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: lines consist of numbers without gaps, any bytes are such numbers, and `take` made enough of them.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), self.len) }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        PANELS.set(std::mem::take(&mut self.lines));
    }
}

#[cfg(test)]
mod tests;
