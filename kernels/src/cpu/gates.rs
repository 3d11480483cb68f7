//! Gates: a branch weighed by a sigmoid or blended into the stream, and the soft cap of logits. One pass over memory each.

use super::Cpu;
use super::elementwise::{Operation, Pairs, get, get_some, put, put_some};
use super::lanes::{Kernel, LANES, Lanes};
use super::math::{exp, sigmoid};

/// Below it tanh is its series; above it, e^2x says it without loss.
const SERIES_UP_TO: f32 = 0.3;
/// tanh(x) / x as a polynomial in x², the highest power first.
const SERIES: [f32; 6] = [
    -8.863_235e-3,
    2.186_949e-2,
    -5.396_825_4e-2,
    1.333_333_3e-1,
    -3.333_333_3e-1,
    1.0,
];

impl Cpu {
    /// `x ← x ⊙ sigmoid(gate)`.
    ///
    /// # Panics
    /// When the lengths differ.
    pub fn sigmoid_mul(&self, x: &mut [f32], gate: &[f32]) {
        self.pairs(x, gate, SigmoidMul);
    }

    /// Multiplies every row of `factors.len()` with `factors`.
    ///
    /// # Panics
    /// When `x` is not whole rows.
    pub fn mul_rows(&self, x: &mut [f32], factors: &[f32]) {
        self.rows(x, factors.len(), |isa, rows| {
            for row in rows.chunks_exact_mut(factors.len()) {
                let (x, y) = (row, factors);
                isa.run(Pairs { x, y, operation: Mul });
            }
        });
    }

    /// `stream ← keep ⊙ stream + take ⊙ branch` for every row of `keep.len()`.
    ///
    /// # Panics
    /// When the slices are not whole rows of equal number.
    pub fn blend(&self, stream: &mut [f32], branch: &[f32], keep: &[f32], take: &[f32]) {
        let cols = keep.len();
        assert_eq!(stream.len(), branch.len(), "a branch for every row");
        assert_eq!(cols, take.len(), "two factors of one width");
        let rows = stream.chunks_exact_mut(cols).zip(branch.chunks_exact(cols));
        for (stream, branch) in rows {
            self.isa().run(Blend {
                stream,
                branch,
                keep,
                take,
            });
        }
    }

    /// `x ← cap · tanh(x · scale / cap)`.
    pub fn soft_cap(&self, x: &mut [f32], scale: f32, cap: f32) {
        self.rows(x, 1, |isa, x| isa.run(SoftCap { x, scale, cap }));
    }

    /// `x ← x · factor`.
    pub fn scale(&self, x: &mut [f32], factor: f32) {
        x.iter_mut().for_each(|x| *x *= factor);
    }
}

#[derive(Clone, Copy)]
struct SigmoidMul;

impl Operation for SigmoidMul {
    #[inline(always)]
    fn lanes<L: Lanes>(self, l: L, x: L::F, y: L::F) -> L::F {
        l.mul(x, sigmoid(l, y))
    }
}

#[derive(Clone, Copy)]
struct Mul;

impl Operation for Mul {
    #[inline(always)]
    fn lanes<L: Lanes>(self, l: L, x: L::F, y: L::F) -> L::F {
        l.mul(x, y)
    }
}

/// One row.
struct Blend<'a> {
    stream: &'a mut [f32],
    branch: &'a [f32],
    keep: &'a [f32],
    take: &'a [f32],
}

impl Kernel for Blend<'_> {
    #[inline(always)]
    fn run<L: Lanes>(self, _lanes: L) {
        let factors = self.keep.iter().zip(self.take);
        for ((stream, branch), (keep, take)) in self.stream.iter_mut().zip(self.branch).zip(factors) {
            *stream = keep.mul_add(*stream, take * branch);
        }
    }
}

struct SoftCap<'a> {
    x: &'a mut [f32],
    scale: f32,
    cap: f32,
}

impl Kernel for SoftCap<'_> {
    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        let (inner, cap) = (l.splat(self.scale / self.cap), l.splat(self.cap));
        let capped = |x| l.mul(cap, tanh(l, l.mul(x, inner)));
        let (vectors, rest) = self.x.as_chunks_mut::<LANES>();
        for x in vectors {
            put(l, x, capped(get(l, x)));
        }
        if !rest.is_empty() {
            let last = capped(get_some(l, rest, 0.0));
            put_some(l, rest, last);
        }
    }
}

/// tanh(x) with a relative error of about 2e-7.
#[inline(always)]
fn tanh<L: Lanes>(l: L, x: L::F) -> L::F {
    let zero = l.splat(0.0);
    let size = l.max(x, l.sub(zero, x));
    let squared = l.mul(x, x);
    let mut series = l.splat(SERIES[0]);
    for coefficient in &SERIES[1..] {
        series = l.fma(series, squared, l.splat(*coefficient));
    }
    let e = exp(l, l.add(size, size));
    let large = l.sub(l.splat(1.0), l.div(l.splat(2.0), l.add(e, l.splat(1.0))));
    let large = l.select_less(x, zero, l.sub(zero, large), large);
    l.select_less(size, l.splat(SERIES_UP_TO), l.mul(x, series), large)
}

#[cfg(test)]
mod tests;
