//! Activations in 8-bit digits: a scale per 32 values, and the sums that weight formats with a zero point or a minimum need.

/// Columns of a line, those of a weight block.
pub(super) const BLOCK: usize = crate::matrix::layout::BLOCK;

/// 32 activations of one token, one cache line.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C, align(64))]
pub(super) struct Line {
    pub(super) codes: [i8; BLOCK],
    /// Activation ≈ scale · code.
    pub(super) scale: f32,
    /// scale · the sum of all codes
    pub(super) total: f32,
    /// scale · the sum of the first sixteen codes, and of the others
    pub(super) totals: [f32; 2],
    /// The sum of all codes.
    pub(super) sum: i32,
    /// The sum of the first sixteen codes, and of the others.
    pub(super) sums: [i32; 2],
    /// Makes every byte of the line one of a number.
    unused: u32,
}

impl Line {
    pub(super) const ZERO: Line = Line {
        codes: [0; BLOCK],
        scale: 0.0,
        total: 0.0,
        totals: [0.0; 2],
        sum: 0,
        sums: [0; 2],
        unused: 0,
    };
}

/// Adding it rounds to the nearest whole number, which then is the low byte of the sum's bits.
const ROUND: f32 = 12_582_912.0;

/// Rounds 32 activations. What is no number makes the scale none, and with it every product.
#[inline(always)]
pub(super) fn quantize(x: &[f32; BLOCK]) -> Line {
    // Compared as integers, a not-a-number is larger than everything and is not lost.
    let mut largest = 0;
    for x in x {
        largest = largest.max(x.to_bits() & 0x7fff_ffff);
    }
    let largest = f32::from_bits(largest);
    let inverse = if largest > 0.0 { 127.0 / largest } else { 0.0 };
    let mut line = Line {
        scale: largest / 127.0,
        ..Line::ZERO
    };
    for (code, x) in line.codes.iter_mut().zip(x) {
        *code = ((x * inverse + ROUND).to_bits() as u8).cast_signed();
    }
    for (i, code) in line.codes.iter().enumerate() {
        line.sums[i / (BLOCK / 2)] += i32::from(*code);
    }
    line.sum = line.sums[0] + line.sums[1];
    line.totals = [line.scale * line.sums[0] as f32, line.scale * line.sums[1] as f32];
    line.total = line.scale * line.sum as f32;
    line
}

/// What a line leaves over of the 32 activations it stands for.
#[inline(always)]
pub(super) fn rest(x: &[f32; BLOCK], line: &Line) -> [f32; BLOCK] {
    let mut rest = *x;
    for (rest, code) in rest.iter_mut().zip(&line.codes) {
        *rest = line.scale.mul_add(-f32::from(*code), *rest);
    }
    rest
}

#[cfg(test)]
mod tests;
