//! The innermost loops: some panels times some tokens, all accumulators in registers.
//!
//! Every (token, output row) is reduced in one fixed order, whatever the tile's shape: over the blocks of 32 columns from
//! the first to the last with one fused multiply-add per group (the integer sums inside a group are exact), or over the
//! columns from the first to the last for f32 activations.
#![expect(unsafe_code, reason = "vector loads through pointers")]
#![expect(clippy::needless_range_loop, reason = "several arrays of registers share an index")]

use super::quantize::Line;
use super::source::{AHEAD, Source};
use crate::cpu::lanes::{Element, LANES, Lanes};
use crate::matrix::layout::{Parts, VECTORS};

/// 8-bit activations times quantized weights: `P` panels, `T` tokens.
///
/// # Safety
/// The panels and the tokens' lines have `blocks` blocks.
#[inline(always)]
pub(super) unsafe fn integer<L: Lanes, S: Source, const P: usize, const T: usize>(
    l: L,
    panels: [S; P],
    tokens: [*const Line; T],
    blocks: usize,
) -> [[L::F; T]; P] {
    let mut sums = [[l.splat(0.0); T]; P];
    for block in 0..blocks {
        let mut codes = [[l.no_codes(); VECTORS]; P];
        for panel in 0..P {
            // SAFETY: the panels have this block.
            codes[panel] = unsafe { panels[panel].codes(l, block) };
        }
        for group in 0..S::GROUPS {
            let mut scales = [l.splat(0.0); P];
            for panel in 0..P {
                // SAFETY: the panels have this block.
                scales[panel] = unsafe { panels[panel].scale(l, block, group) };
            }
            for token in 0..T {
                // SAFETY: the token has this line.
                let line = unsafe { &*tokens[token].add(block) };
                let dots = group_dots::<L, S, P>(l, &panels, &codes, line, group);
                for panel in 0..P {
                    let scale = l.mul(scales[panel], l.splat(line.scale));
                    sums[panel][token] = l.fma(scale, l.to_f32(dots[panel]), sums[panel][token]);
                }
            }
            if S::MINIMUM {
                let mut minima = [l.splat(0.0); P];
                for panel in 0..P {
                    // SAFETY: the panels have this block.
                    minima[panel] = unsafe { panels[panel].minimum(l, block, group) };
                }
                for token in 0..T {
                    // SAFETY: the token has this line.
                    let line = unsafe { &*tokens[token].add(block) };
                    let total = if S::GROUPS == 1 { line.total } else { line.totals[group] };
                    for panel in 0..P {
                        sums[panel][token] = l.fma(minima[panel], l.splat(total), sums[panel][token]);
                    }
                }
            }
        }
    }
    sums
}

/// Σ (code - zero) · activation over a group of every panel, exactly.
#[inline(always)]
fn group_dots<L: Lanes, S: Source, const P: usize>(
    l: L,
    panels: &[S; P],
    codes: &[[L::C; VECTORS]; P],
    line: &Line,
    group: usize,
) -> [L::I; P] {
    let vectors = VECTORS / S::GROUPS;
    let sum = if S::GROUPS == 1 { line.sum } else { line.sums[group] };
    let mut dots = [l.splat_i(0); P];
    for panel in 0..P {
        dots[panel] = l.splat_i(-i32::from(panels[panel].zero()) * sum);
    }
    for vector in group * vectors..(group + 1) * vectors {
        // SAFETY: a line has four codes for each of a block's vectors.
        let four = i32::from_le(unsafe { line.codes.as_ptr().cast::<i32>().add(vector).read() });
        for panel in 0..P {
            dots[panel] = if S::WIDE {
                l.dot::<true>(dots[panel], codes[panel][vector], four)
            } else {
                l.dot::<false>(dots[panel], codes[panel][vector], four)
            };
        }
    }
    dots
}

/// f32 activations times float weights: `P` panels, `T` tokens.
///
/// # Safety
/// The panels have `cols` columns of sixteen `E`, the tokens `cols` numbers.
#[inline(always)]
pub(super) unsafe fn float<L: Lanes, E: Element, const P: usize, const T: usize>(
    l: L,
    panels: [*const u8; P],
    tokens: [*const f32; T],
    cols: usize,
) -> [[L::F; T]; P] {
    let mut sums = [[l.splat(0.0); T]; P];
    for column in 0..cols {
        let mut weights = [l.splat(0.0); P];
        for panel in 0..P {
            // SAFETY: the panels have this column.
            weights[panel] = unsafe { E::load(l, panels[panel].add(column * LANES * E::BYTES)) };
            l.prefetch(panels[panel].wrapping_add(column * LANES * E::BYTES + AHEAD));
        }
        for token in 0..T {
            // SAFETY: the token has this column.
            let x = l.splat(unsafe { *tokens[token].add(column) });
            for panel in 0..P {
                sums[panel][token] = l.fma(weights[panel], x, sums[panel][token]);
            }
        }
    }
    sums
}

/// As [`float`], of panels with scales for runs of columns. A run's sum begins at zero; the runs are added in order.
///
/// # Safety
/// As for [`float`]; the panels have scales where `parts` says.
#[inline(always)]
pub(super) unsafe fn scaled_float<L: Lanes, E: Element, const P: usize, const T: usize>(
    l: L,
    panels: [*const u8; P],
    tokens: [*const f32; T],
    cols: usize,
    parts: &Parts,
) -> [[L::F; T]; P] {
    let mut totals = [[l.splat(0.0); T]; P];
    for (run, first) in (0..cols).step_by(parts.scale_cols).enumerate() {
        let mut starts = panels;
        for start in &mut starts {
            *start = start.wrapping_add(first * LANES * E::BYTES);
        }
        let mut rows = tokens;
        for row in &mut rows {
            *row = row.wrapping_add(first);
        }
        // SAFETY: the columns from `first` on are there.
        let sums = unsafe { float::<L, E, P, T>(l, starts, rows, parts.scale_cols.min(cols - first)) };
        for panel in 0..P {
            let at = panels[panel].wrapping_add(parts.scales + run * LANES * size_of::<f32>());
            // SAFETY: the caller has a scale for every run.
            let scale = unsafe { l.load(at.cast()) };
            for token in 0..T {
                totals[panel][token] = l.fma(scale, sums[panel][token], totals[panel][token]);
            }
        }
    }
    totals
}

/// Writes the weights of a quantized panel's first `blocks` blocks as f32, column after column.
///
/// # Safety
/// The panel has these blocks and `out` has room for 32 · 16 numbers of each.
#[inline(always)]
pub(super) unsafe fn dequantize<L: Lanes, S: Source>(l: L, panel: S, blocks: usize, out: *mut f32) {
    let zero = l.splat(f32::from(panel.zero()));
    for block in 0..blocks {
        // SAFETY: the panel has this block.
        let codes = unsafe { panel.codes(l, block) };
        for (vector, codes) in codes.into_iter().enumerate() {
            let group = vector * S::GROUPS / VECTORS;
            let bytes = [
                l.byte::<0>(codes),
                l.byte::<1>(codes),
                l.byte::<2>(codes),
                l.byte::<3>(codes),
            ];
            for (i, code) in bytes.into_iter().enumerate() {
                // SAFETY: the panel has this block and `out` room for its columns.
                unsafe {
                    let scale = panel.scale(l, block, group);
                    let weight = l.mul(scale, l.sub(code, zero));
                    let weight = if S::MINIMUM {
                        l.add(weight, panel.minimum(l, block, group))
                    } else {
                        weight
                    };
                    l.store(out.add((block * 4 * VECTORS + vector * 4 + i) * LANES), weight);
                }
            }
        }
    }
}
