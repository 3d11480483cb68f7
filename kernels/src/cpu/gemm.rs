//! Matrix products `out[n, rows] = x[n, cols] · wᵀ` over packed weights.
//!
//! ```text
//!   few tokens:   for each panel: for each block: unpack in registers, multiply with every token
//!   many tokens:  for each run of tokens that fits the L2 cache:
//!                   unpack some panels to scratch, then tiles of 2 panels x 4 tokens
//! ```
//! With two digits, each token counts twice: once with its first digits, once with its second ones, whose sums are added.
//! A product is cut into items (run of tokens x some panels) that threads take from the pool.
//!
//! Cost of one q4_1 panel-block (16 rows x 32 columns): 320 bytes read once, and a token 8 `vpdpbusd` and 3 float
//! operations on the same two ports, so at most 73 % of the integer peak; one token needs 6.4 operations a byte, far below
//! what a core does while memory delivers a byte.
//!
//! Measured on one core of an EPYC (Zen 5, AVX-512 VNNI; peaks 1,043 GOP/s of integers, 265 GFLOP/s of f32; memory read at
//! 51 to 57 GB/s by two cores) with `examples/bench.rs`:
//!
//! | format | 1 token, 16384 x 2048 | 8 tokens, 1536 x 768 | 512 tokens, 1536 x 768 |
//! |---|---|---|---|
//! | q4_0, q4_1 | 328, 219 GOP/s (92, 68 GB/s) | 708, 660 | 679, 656 |
//! | q5_0, q8_0 | 192, 101 GOP/s (66, 53 GB/s) | 664, 644 | 673, 653 |
//! | q4_K, q6_K | 268, 140 GOP/s (77, 58 GB/s) | 647, 467 | 666, 610 |
//! | bf16 times f32 | 42 GFLOP/s (42 GB/s) | 260 | 269 |
//!
//! All products, norms, rotations and attention of SmolLM2-135M (q4_1, head q8_0) on both cores: a prompt of 512 at 3,568
//! tok/s; steps of 1, 8 and 16 sequences at context 256 at 393, 1,899 and 2,206 tok/s.
#![expect(unsafe_code, reason = "threads write disjoint parts of one output")]

mod float;
mod integer;
mod quantize;
mod scratch;
mod source;
mod tile;

use std::ops::Range;

use super::lanes::{Kernel, LANES, Lanes};
use super::{Cpu, Isa};
use crate::matrix::layout::{PANEL, with_format};
use crate::{Arithmetic, Matrix};
use quantize::Line;
use scratch::Scratch;

/// Tokens of the largest tile.
const TILE_TOKENS: usize = 8;
/// Up to so many tokens, a product takes about as long as reading its weights, and long runs of memory matter most.
const FEW: usize = 16;
/// Items of a product for each thread, when tokens are few.
const ITEMS_EACH: usize = 2;
/// Bytes of weights of an item for few tokens: so many that memory is read in long runs, so few that they stay in the L2
/// cache for the next tile and that a thread that lost its processor holds up little.
const ITEM_BYTES: usize = 256 << 10;
/// Panels of an item for many tokens.
const MANY_PANELS: usize = 4;
/// Bytes of activations that a run of tokens may have: half of a common L2 cache.
const RUN_BYTES: usize = 512 << 10;

/// One matrix product of a call.
#[derive(Clone, Copy)]
struct Product<'a> {
    matrix: &'a Matrix,
    x: &'a [f32],
    /// The first digits of all tokens, then the second ones of all.
    lines: &'a [Line],
    tokens: usize,
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
    /// Times digits: token `t` with two digits is `2t` and `2t + 1`, always in the same item.
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
        let mut lines = Scratch::take_lines();
        let most = products.iter().map(|(matrix, _)| digits(matrix)).max().unwrap_or(0);
        if most > 0 {
            let padded = padded(x, x.len() / n.max(1));
            quantize_rows(self, padded.as_deref().unwrap_or(x), n, most, lines.vector());
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
                    lines: lines.as_slice(),
                    tokens: n,
                    out,
                },
                self.threads(),
                &mut items,
            );
        }
        self.pool().for_each(items.len(), &|index| items[index].run(self.isa()));
    }
}

/// 8-bit digits of an activation in products with `matrix`.
fn digits(matrix: &Matrix) -> usize {
    if matrix.dtype().is_float() {
        0
    } else {
        matrix.arithmetic().digits()
    }
}

/// Cuts a product into items: runs of tokens, and within them panels.
fn cut<'a>(product: Product<'a>, threads: usize, items: &mut Vec<Item<'a>>) {
    let (panels, cols, digits) = (product.matrix.panels(), product.matrix.cols(), digits(product.matrix));
    let n = product.tokens * digits.max(1);
    let token_bytes = match digits {
        0 => cols * 4,
        _ => product.matrix.parts().blocks * size_of::<Line>(),
    };
    let run = (RUN_BYTES / token_bytes.max(1) / TILE_TOKENS * TILE_TOKENS).clamp(FEW, 256);
    let panels_each = if n <= FEW {
        // Float panels are read four at a time, see `float::run`.
        let together = if digits == 0 { 4 } else { 1 };
        let share = panels.div_ceil(ITEMS_EACH * threads).next_multiple_of(together);
        share
            .min(ITEM_BYTES / product.matrix.parts().bytes.max(1))
            .max(together)
    } else {
        MANY_PANELS
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

/// Rows of `cols` numbers with zeros behind them, if they are not whole blocks.
fn padded(x: &[f32], cols: usize) -> Option<Vec<f32>> {
    if cols.is_multiple_of(quantize::BLOCK) {
        return None;
    }
    let width = cols.next_multiple_of(quantize::BLOCK);
    let mut padded = vec![0.0; x.len() / cols * width];
    for (to, row) in padded.chunks_exact_mut(width).zip(x.chunks_exact(cols)) {
        to[..cols].copy_from_slice(row);
    }
    Some(padded)
}

/// Rounds `n` rows to one or two digits.
fn quantize_rows(cpu: &Cpu, x: &[f32], n: usize, digits: usize, lines: &mut Vec<Line>) {
    /// Blocks of an item: some microseconds' work.
    const EACH: usize = 1024;
    let blocks = x.as_chunks::<{ quantize::BLOCK }>().0;
    debug_assert!(
        n == 0 || blocks.len() * quantize::BLOCK == x.len(),
        "quantized rows are whole blocks"
    );
    lines.resize(blocks.len() * digits, Line::ZERO);
    let (first, second) = lines.split_at_mut(blocks.len());
    let isa = cpu.isa();
    if blocks.len() <= EACH {
        return isa.run(QuantizeBlocks { blocks, first, second });
    }
    // With one digit there are no second ones; every chunk then gets none.
    let mut seconds = second.chunks_mut(EACH);
    let firsts = first
        .chunks_mut(EACH)
        .map(|first| (first, seconds.next().unwrap_or_default()));
    let jobs: Vec<_> = blocks.chunks(EACH).zip(firsts).map(std::sync::Mutex::new).collect();
    cpu.pool().for_each(jobs.len(), &|index| {
        let mut job = jobs[index].try_lock().expect("every chunk is taken by one thread");
        let (blocks, (first, second)) = &mut *job;
        isa.run(QuantizeBlocks { blocks, first, second });
    });
}

struct QuantizeBlocks<'a> {
    blocks: &'a [[f32; quantize::BLOCK]],
    first: &'a mut [Line],
    /// As many, or none.
    second: &'a mut [Line],
}

impl Kernel for QuantizeBlocks<'_> {
    #[inline(always)]
    fn run<L: Lanes>(self, _lanes: L) {
        for (line, block) in self.first.iter_mut().zip(self.blocks) {
            *line = quantize::quantize(block);
        }
        for (second, (first, block)) in self.second.iter_mut().zip(self.first.iter().zip(self.blocks)) {
            *second = quantize::quantize(&quantize::rest(block, first));
        }
    }
}

impl Item<'_> {
    fn run(&self, isa: Isa) {
        let matrix = self.product.matrix;
        match matrix.arithmetic() {
            Arithmetic::Int8 | Arithmetic::Int16 => {
                with_format!(matrix.dtype(), F => integer::run::<F>(isa, self), float::run(isa, self))
            }
            Arithmetic::Exact => {
                with_format!(matrix.dtype(), F => float::run_exact::<F>(isa, self), float::run(isa, self))
            }
        }
    }

    /// Writes a tile's sums. The last panel may have fewer rows than lanes.
    #[inline(always)]
    fn write<L: Lanes, const P: usize, const T: usize>(&self, l: L, panel: usize, token: usize, sums: [[L::F; T]; P]) {
        let Out { start, rows } = self.product.out;
        let digits = digits(self.product.matrix).max(1);
        let scale = l.splat(self.product.matrix.scale());
        for (panel, sums) in (panel..).zip(sums) {
            let room = rows - panel * PANEL;
            for (token, sum) in (token..).zip(sums) {
                let sum = l.mul(sum, scale);
                // SAFETY: row `panel · 16` of the token is inside the output, and this item alone writes it.
                let at = unsafe { start.add(token / digits * rows + panel * PANEL) };
                let is_second = token % digits == 1;
                if room >= LANES {
                    // SAFETY: at least sixteen rows follow, which the first digits have written.
                    unsafe { l.store(at, if is_second { l.add(l.load(at), sum) } else { sum }) };
                } else {
                    let mut lanes = [0.0; LANES];
                    // SAFETY: `lanes` has room for sixteen; `room` rows follow in the output.
                    unsafe {
                        if is_second {
                            std::ptr::copy_nonoverlapping(at, lanes.as_mut_ptr(), room);
                        }
                        let before = l.load(lanes.as_ptr());
                        l.store(lanes.as_mut_ptr(), if is_second { l.add(before, sum) } else { sum });
                        std::ptr::copy_nonoverlapping(lanes.as_ptr(), at, room);
                    }
                }
            }
        }
    }

    #[inline(always)]
    fn lines(&self, token: usize) -> *const Line {
        let Product { matrix, tokens, .. } = self.product;
        let (blocks, digits) = (matrix.parts().blocks, digits(matrix));
        let row = token % digits * tokens + token / digits;
        self.product.lines[row * blocks..(row + 1) * blocks].as_ptr()
    }

    #[inline(always)]
    fn row(&self, token: usize) -> *const f32 {
        let cols = self.product.matrix.cols();
        self.product.x[token * cols..(token + 1) * cols].as_ptr()
    }
}

#[cfg(test)]
mod tests;
