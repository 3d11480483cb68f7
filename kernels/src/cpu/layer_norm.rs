//! Norms with mean and bias, and the activation that goes with them: what picture and sound models use.

use super::Cpu;
use super::elementwise::{get, get_some, put, put_some};
use super::lanes::{Kernel, LANES, Lanes};
use super::math::exp;

impl Cpu {
    /// `weight ⊙ (x - mean(x)) / sqrt(variance(x) + epsilon) + bias` for every row of `weight.len()`, in place.
    ///
    /// # Panics
    /// When `x` is not whole rows or weight and bias differ in length.
    pub fn layer_norm_in_place(&self, x: &mut [f32], weight: &[f32], bias: &[f32], epsilon: f32) {
        assert_eq!(weight.len(), bias.len(), "a weight and a bias for every column");
        self.rows(x, weight.len(), |isa, rows| {
            isa.run(LayerNorm {
                rows,
                weight,
                bias,
                epsilon,
            });
        });
    }

    /// `x ← x/2 · (1 + erf(x/√2))`.
    pub fn gelu(&self, x: &mut [f32]) {
        self.rows(x, 1, |isa, rows| isa.run(Gelu(rows)));
    }
}

struct LayerNorm<'a> {
    rows: &'a mut [f32],
    weight: &'a [f32],
    bias: &'a [f32],
    epsilon: f32,
}

impl Kernel for LayerNorm<'_> {
    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        let cols = self.weight.len();
        let (weights, weights_rest) = self.weight.as_chunks::<LANES>();
        let (biases, biases_rest) = self.bias.as_chunks::<LANES>();
        for row in self.rows.chunks_exact_mut(cols) {
            let (vectors, rest) = row.as_chunks_mut::<LANES>();
            let mut sum = get_some(l, rest, 0.0);
            for x in vectors.iter() {
                sum = l.add(sum, get(l, x));
            }
            let mean = l.sum(sum) / cols as f32;
            // The lanes beyond the row hold the mean, so that they add nothing to the variance.
            let last = l.sub(get_some(l, rest, mean), l.splat(mean));
            let mut squares = l.mul(last, last);
            for x in vectors.iter_mut() {
                let centred = l.sub(get(l, x), l.splat(mean));
                squares = l.fma(centred, centred, squares);
                put(l, x, centred);
            }
            let scale = l.splat(1.0 / (l.sum(squares) / cols as f32 + self.epsilon).sqrt());
            for ((x, weight), bias) in vectors.iter_mut().zip(weights).zip(biases) {
                let scaled = l.mul(get(l, x), scale);
                put(l, x, l.fma(scaled, get(l, weight), get(l, bias)));
            }
            let (weight, bias) = (get_some(l, weights_rest, 0.0), get_some(l, biases_rest, 0.0));
            put_some(l, rest, l.fma(l.mul(last, scale), weight, bias));
        }
    }
}

struct Gelu<'a>(&'a mut [f32]);

impl Kernel for Gelu<'_> {
    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        let (vectors, rest) = self.0.as_chunks_mut::<LANES>();
        for x in vectors.iter_mut() {
            put(l, x, gelu(l, get(l, x)));
        }
        put_some(l, rest, gelu(l, get_some(l, rest, 0.0)));
    }
}

/// `e^(z²) · erfc(z) / t` as a polynomial in `t = 1 / (1 + z/2)`, fitted for 0 ≤ z ≤ 9.5; the highest power first. Largest
/// relative error of the fit: 4e-8.
const POLYNOMIAL: [f32; 9] = [
    -0.058_890_945,
    0.283_702_75,
    -0.485_385_2,
    0.275_979_73,
    -0.025_178_664,
    0.202_070_2,
    0.243_260_93,
    0.282_353_5,
    0.282_087_68,
];

/// With `c = erfc(|x|/√2) / 2` the result is `x·c` on the left and `x - x·c` on the right: small values keep their digits.
#[inline(always)]
fn gelu<L: Lanes>(l: L, x: L::F) -> L::F {
    let zero = l.splat(0.0);
    let z = l.mul(l.max(x, l.sub(zero, x)), l.splat(std::f32::consts::FRAC_1_SQRT_2));
    let t = l.div(l.splat(1.0), l.fma(z, l.splat(0.5), l.splat(1.0)));
    let mut polynomial = l.splat(POLYNOMIAL[0]);
    for coefficient in &POLYNOMIAL[1..] {
        polynomial = l.fma(polynomial, t, l.splat(*coefficient));
    }
    let decay = exp(l, l.sub(zero, l.mul(z, z)));
    let half = l.mul(l.mul(polynomial, t), l.mul(decay, l.splat(0.5)));
    let left = l.mul(x, half);
    l.select_less(x, zero, left, l.sub(x, left))
}

#[cfg(test)]
mod tests;
