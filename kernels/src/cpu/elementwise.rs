//! Norms, activations, sums and softmax: one pass over memory each, shared among threads when it is long.

use std::sync::Mutex;

use super::lanes::{Kernel, LANES, Lanes};
use super::math::{exp, sigmoid};
use super::{Cpu, Isa};

/// Numbers of an item: some microseconds' work, so that a fork pays.
const EACH: usize = 16 << 10;

impl Cpu {
    /// `weight ⊙ x / sqrt(mean(x²) + epsilon)` for every row of `weight.len()`.
    ///
    /// # Panics
    /// When the slices are not whole rows of equal number.
    pub fn rms_norm(&self, x: &[f32], weight: &[f32], epsilon: f32, out: &mut [f32]) {
        assert_eq!(x.len(), out.len(), "as many rows out as in");
        out.copy_from_slice(x);
        self.rms_norm_in_place(out, weight, epsilon);
    }

    /// As [`Cpu::rms_norm`], in place (head norms).
    ///
    /// # Panics
    /// When `x` is not whole rows.
    pub fn rms_norm_in_place(&self, x: &mut [f32], weight: &[f32], epsilon: f32) {
        self.rows(x, weight.len(), |isa, rows| isa.run(RmsNorm { rows, weight, epsilon }));
    }

    /// Softmax of every row of `cols`, in place.
    ///
    /// # Panics
    /// When `x` is not whole rows.
    pub fn softmax(&self, x: &mut [f32], cols: usize) {
        self.rows(x, cols, |isa, rows| isa.run(Softmax { rows, cols }));
    }

    /// `gate ← silu(gate) ⊙ up`.
    ///
    /// # Panics
    /// When the lengths differ.
    pub fn silu_mul(&self, gate: &mut [f32], up: &[f32]) {
        self.pairs(gate, up, SiluMul);
    }

    /// `gate ← gelu_tanh(gate) ⊙ up`.
    ///
    /// # Panics
    /// When the lengths differ.
    pub fn gelu_tanh_mul(&self, gate: &mut [f32], up: &[f32]) {
        self.pairs(gate, up, GeluTanhMul);
    }

    /// `x ← x + y`.
    ///
    /// # Panics
    /// When the lengths differ.
    pub fn add_assign(&self, x: &mut [f32], y: &[f32]) {
        self.pairs(x, y, Add);
    }

    /// Adds `bias` to every row of `bias.len()`.
    ///
    /// # Panics
    /// When `x` is not whole rows.
    pub fn add_bias(&self, x: &mut [f32], bias: &[f32]) {
        self.rows(x, bias.len(), |isa, rows| {
            for row in rows.chunks_exact_mut(bias.len()) {
                isa.run(Pairs {
                    x: row,
                    y: bias,
                    operation: Add,
                });
            }
        });
    }

    /// Calls `run` with runs of whole rows of `cols`, on several threads when there is much to do.
    pub(super) fn rows(&self, x: &mut [f32], cols: usize, run: impl Fn(Isa, &mut [f32]) + Sync) {
        assert!(
            cols > 0 && x.len().is_multiple_of(cols),
            "{} numbers are not whole rows of {cols}",
            x.len()
        );
        let each = EACH.next_multiple_of(cols);
        if x.len() <= each {
            return run(self.isa(), x);
        }
        let items: Vec<_> = x.chunks_mut(each).map(Mutex::new).collect();
        self.pool().for_each(items.len(), &|index| {
            run(
                self.isa(),
                &mut items[index].try_lock().expect("every item is taken by one thread"),
            );
        });
    }

    pub(super) fn pairs<O: Operation>(&self, x: &mut [f32], y: &[f32], operation: O) {
        assert_eq!(x.len(), y.len(), "two operands of one length");
        if x.len() <= EACH {
            return self.isa().run(Pairs { x, y, operation });
        }
        let items: Vec<_> = x.chunks_mut(EACH).zip(y.chunks(EACH)).map(Mutex::new).collect();
        self.pool().for_each(items.len(), &|index| {
            let mut item = items[index].try_lock().expect("every item is taken by one thread");
            let (x, y) = &mut *item;
            self.isa().run(Pairs { x, y, operation });
        });
    }
}

/// What to do with two numbers.
pub(super) trait Operation: Copy + Sync {
    fn lanes<L: Lanes>(self, l: L, x: L::F, y: L::F) -> L::F;
}

#[derive(Clone, Copy)]
struct Add;

impl Operation for Add {
    #[inline(always)]
    fn lanes<L: Lanes>(self, l: L, x: L::F, y: L::F) -> L::F {
        l.add(x, y)
    }
}

#[derive(Clone, Copy)]
struct SiluMul;

impl Operation for SiluMul {
    #[inline(always)]
    fn lanes<L: Lanes>(self, l: L, x: L::F, y: L::F) -> L::F {
        l.mul(l.mul(x, sigmoid(l, x)), y)
    }
}

#[derive(Clone, Copy)]
struct GeluTanhMul;

impl Operation for GeluTanhMul {
    /// `x/2 · (1 + tanh(u))` is `x · sigmoid(2u)`.
    #[inline(always)]
    fn lanes<L: Lanes>(self, l: L, x: L::F, y: L::F) -> L::F {
        const TWICE_ROOT: f32 = 2.0 * 0.797_884_6;
        let cubic = l.fma(l.mul(x, x), l.splat(0.044_715), l.splat(1.0));
        let inner = l.mul(l.mul(x, cubic), l.splat(TWICE_ROOT));
        l.mul(l.mul(x, sigmoid(l, inner)), y)
    }
}

pub(super) struct Pairs<'a, O> {
    pub(super) x: &'a mut [f32],
    pub(super) y: &'a [f32],
    pub(super) operation: O,
}

impl<O: Operation> Kernel for Pairs<'_, O> {
    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        let (x, x_rest) = self.x.as_chunks_mut::<LANES>();
        let (y, y_rest) = self.y.as_chunks::<LANES>();
        for (x, y) in x.iter_mut().zip(y) {
            put(l, x, self.operation.lanes(l, get(l, x), get(l, y)));
        }
        if !x_rest.is_empty() {
            let result = self
                .operation
                .lanes(l, get_some(l, x_rest, 0.0), get_some(l, y_rest, 0.0));
            put_some(l, x_rest, result);
        }
    }
}

struct RmsNorm<'a> {
    rows: &'a mut [f32],
    weight: &'a [f32],
    epsilon: f32,
}

impl Kernel for RmsNorm<'_> {
    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        let cols = self.weight.len();
        for row in self.rows.chunks_exact_mut(cols) {
            let (vectors, rest) = row.as_chunks_mut::<LANES>();
            let (weights, weights_rest) = self.weight.as_chunks::<LANES>();
            let mut squares = l.splat(0.0);
            for x in vectors.iter() {
                squares = l.fma(get(l, x), get(l, x), squares);
            }
            let last = get_some(l, rest, 0.0);
            squares = l.fma(last, last, squares);
            let scale = l.splat(1.0 / (l.sum(squares) / cols as f32 + self.epsilon).sqrt());
            for (x, weight) in vectors.iter_mut().zip(weights) {
                put(l, x, l.mul(l.mul(get(l, x), scale), get(l, weight)));
            }
            put_some(l, rest, l.mul(l.mul(last, scale), get_some(l, weights_rest, 0.0)));
        }
    }
}

struct Softmax<'a> {
    rows: &'a mut [f32],
    cols: usize,
}

impl Kernel for Softmax<'_> {
    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        for row in self.rows.chunks_exact_mut(self.cols) {
            let (vectors, rest) = row.as_chunks_mut::<LANES>();
            let last = get_some(l, rest, f32::NEG_INFINITY);
            let mut max = last;
            for x in vectors.iter() {
                max = l.max(max, get(l, x));
            }
            let max = l.splat(l.largest(max));
            let last = exp(l, l.sub(last, max));
            let mut sum = last;
            for x in vectors.iter_mut() {
                let weight = exp(l, l.sub(get(l, x), max));
                sum = l.add(sum, weight);
                put(l, x, weight);
            }
            let sum = l.splat(l.sum(sum));
            for x in vectors.iter_mut() {
                put(l, x, l.div(get(l, x), sum));
            }
            put_some(l, rest, l.div(last, sum));
        }
    }
}

#[inline(always)]
pub(super) fn get<L: Lanes>(l: L, x: &[f32; LANES]) -> L::F {
    #[expect(unsafe_code, reason = "a vector load")]
    // SAFETY: sixteen numbers are there.
    unsafe {
        l.load(x.as_ptr())
    }
}

#[inline(always)]
pub(super) fn put<L: Lanes>(l: L, to: &mut [f32; LANES], x: L::F) {
    #[expect(unsafe_code, reason = "a vector store")]
    // SAFETY: there is room for sixteen numbers.
    unsafe {
        l.store(to.as_mut_ptr(), x);
    }
}

/// Fewer than sixteen numbers, the other lanes `fill`.
#[inline(always)]
pub(super) fn get_some<L: Lanes>(l: L, x: &[f32], fill: f32) -> L::F {
    let mut lanes = [fill; LANES];
    lanes[..x.len()].copy_from_slice(x);
    get(l, &lanes)
}

/// The first of sixteen numbers.
#[inline(always)]
pub(super) fn put_some<L: Lanes>(l: L, to: &mut [f32], x: L::F) {
    let mut lanes = [0.0; LANES];
    put(l, &mut lanes, x);
    to.copy_from_slice(&lanes[..to.len()]);
}

#[cfg(test)]
mod tests;
