//! Causal convolution over time, each channel on its own.

use std::sync::Mutex;

use super::Cpu;
use super::lanes::{Kernel, Lanes};

/// Numbers of an item: some microseconds' work, so that a fork pays.
const EACH: usize = 16 << 10;

impl Cpu {
    /// `out[t, c] = bias[c] + Σ_j taps[j, c] · x[t - last + j, c]` with zeros before the first step; `last` is the number of
    /// taps less one, and the last tap meets the step itself. `x` and `out` are `[steps, channels]`.
    ///
    /// # Panics
    /// When a slice does not fit its shape.
    pub fn causal_convolution(&self, x: &[f32], taps: &[f32], bias: &[f32], out: &mut [f32]) {
        let channels = bias.len();
        assert_eq!(x.len(), out.len(), "as many steps out as in");
        assert!(
            x.len().is_multiple_of(channels) && taps.len().is_multiple_of(channels),
            "whole steps and taps of {channels} channels"
        );
        let each = (EACH / channels).max(1);
        let items: Vec<_> = out.chunks_mut(each * channels).map(Mutex::new).collect();
        self.pool().for_each(items.len(), &|index| {
            let mut out = items[index].try_lock().expect("every item is taken by one thread");
            self.isa().run(Steps {
                x,
                taps,
                bias,
                first: index * each,
                out: &mut out,
            });
        });
    }
}

/// Some steps of the result.
struct Steps<'a> {
    x: &'a [f32],
    taps: &'a [f32],
    bias: &'a [f32],
    first: usize,
    out: &'a mut [f32],
}

impl Kernel for Steps<'_> {
    /// Products and sums of slices, which the compiler turns into vector instructions.
    #[inline(always)]
    fn run<L: Lanes>(self, _lanes: L) {
        let channels = self.bias.len();
        let before = self.taps.len() / channels - 1;
        for (step, out) in (self.first..).zip(self.out.chunks_exact_mut(channels)) {
            out.copy_from_slice(self.bias);
            for (tap, weights) in self.taps.chunks_exact(channels).enumerate() {
                let Some(from) = (step + tap).checked_sub(before) else {
                    continue;
                };
                let x = &self.x[from * channels..][..channels];
                for ((out, x), weight) in out.iter_mut().zip(x).zip(weights) {
                    *out += x * weight;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
