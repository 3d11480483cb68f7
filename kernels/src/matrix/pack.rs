//! From a file's rows to panels, and one row back out of its panel. Slow is fine here: each weight passes once.

use half::{bf16, f16};

use super::layout::{BLOCK, E2M1, Format, PANEL, Parts, VECTOR};
use crate::DType;
use crate::reference::{decode_e4m3, decode_e8m0, q3_k_scale, q4_k_scale};

/// The 32 codes of a block, and what scales them, as the file has them.
#[derive(Clone, Copy)]
pub(crate) struct Block {
    pub(crate) codes: [u8; BLOCK],
    pub(crate) factors: [i8; 2],
    pub(crate) offsets: [i8; 2],
}

/// The 16-bit scale and minimum of a file's block (of its group, where groups have their own), as bits. Both halvings are
/// exact: the smallest numbers of E4M3 and E8M0 have room below them in f16 and bf16.
fn unit_halves(dtype: DType, b: &[u8], group: usize) -> (u16, u16) {
    let at = |i: usize| u16::from_le_bytes([b[i], b[i + 1]]);
    match dtype {
        DType::Q4_1 | DType::Q5_1 | DType::Q4K | DType::Q5K => (at(0), at(2)),
        DType::Q2K => (at(80), at(82)),
        DType::Q3K => (at(108), 0),
        DType::Q6K => (at(208), 0),
        DType::Mxfp4 => (bf16::from_f32(decode_e8m0(b[0]) * 0.5).to_bits(), 0),
        DType::Nvfp4 => (f16::from_f32(decode_e4m3(b[group]) * 0.5).to_bits(), 0),
        DType::Int4G16 => (at(2 * group), 0),
        _ => (at(0), 0),
    }
}

/// Sub-block `index` (32 values) of a file's block.
fn read_block(dtype: DType, b: &[u8], index: usize) -> Block {
    let mut block = Block {
        codes: [0; BLOCK],
        factors: [1; 2],
        offsets: [1; 2],
    };
    for (i, code) in block.codes.iter_mut().enumerate() {
        *code = code_at(dtype, b, index * BLOCK + i);
    }
    match dtype {
        DType::Q4K | DType::Q5K => {
            let (scale, minimum) = q4_k_scale(&b[4..16], index);
            block.factors = [scale.cast_signed(); 2];
            block.offsets = [minimum.cast_signed(); 2];
        }
        DType::Q2K => {
            block.factors = [0, 1].map(|group| (b[2 * index + group] & 15).cast_signed());
            block.offsets = [0, 1].map(|group| (b[2 * index + group] >> 4).cast_signed());
        }
        DType::Q3K => block.factors = [0, 1].map(|group| q3_k_scale(&b[96..108], 2 * index + group)),
        DType::Q6K => block.factors = [0, 1].map(|group| b[192 + 2 * index + group].cast_signed()),
        DType::Int4 => block.offsets = [b[2].cast_signed(); 2],
        DType::Int4G16 => block.offsets = [b[4], b[5]].map(u8::cast_signed),
        _ => {}
    }
    block
}

/// The unsigned code of value `v` of a file's block.
fn code_at(dtype: DType, b: &[u8], v: usize) -> u8 {
    let nibble = |b: &[u8]| if v < 16 { b[v] & 15 } else { b[v - 16] >> 4 };
    let fifth = |b: &[u8]| (b[v / 8] >> (v % 8) & 1) << 4;
    let k_nibble = |b: &[u8]| b[v / 64 * 32 + v % 32] >> (v % 64 / 32 * 4) & 15;
    let (half, r) = (v / 128, v % 128);
    let two_bits = |b: &[u8]| b[32 * half + r % 32] >> (2 * (r / 32)) & 3;
    let pair = |b: &[u8]| b[v / 2] >> (v % 2 * 4) & 15;
    match dtype {
        DType::Mxfp4 => pair(&b[1..]),
        DType::Nvfp4 => pair(&b[2..]),
        DType::Int4 => pair(&b[3..]),
        DType::Int4G16 => pair(&b[6..]),
        DType::Q4_0 => nibble(&b[2..]),
        DType::Q4_1 => nibble(&b[4..]),
        DType::Q5_0 => nibble(&b[6..]) | fifth(&b[2..]),
        DType::Q5_1 => nibble(&b[8..]) | fifth(&b[4..]),
        DType::Q8_0 => b[2 + v] ^ 0x80,
        DType::Q2K => two_bits(&b[16..]),
        DType::Q3K => two_bits(&b[32..]) | (b[v % 32] >> (v / 32) & 1) << 2,
        DType::Q4K => k_nibble(&b[16..]),
        DType::Q5K => k_nibble(&b[48..]) | (b[16 + v % 32] >> (v / 32) & 1) << 4,
        DType::Q6K => b[64 * half + r % 64] >> (r / 64 * 4) & 15 | two_bits(&b[128..]) << 4,
        DType::F32 | DType::F16 | DType::BF16 | DType::F8E4M3 => 0,
    }
}

/// Widths of a format's planes: code bits from low to high.
pub(crate) const fn planes(bits: u32) -> &'static [u32] {
    match bits {
        2 => &[2],
        3 => &[2, 1],
        4 => &[4],
        5 => &[4, 1],
        6 => &[4, 2],
        _ => &[8],
    }
}

/// For byte `byte` of vector `vector` in a plane of `width` bits: the byte's place in the plane, and the shift in it.
fn place(width: u32, vector: usize, byte: usize) -> (usize, u32) {
    let (stored, slot) = match width {
        4 => (vector % 4, vector / 4),
        2 => (vector / 4, vector % 4),
        1 => (0, vector),
        _ => (vector, 0),
    };
    (stored * VECTOR + byte, slot as u32 * width)
}

/// Visits the pieces of the code of (`row`, `column`) in a packed block: byte, shift in the byte, shift in the code, mask.
fn pieces(bits: u32, row: usize, column: usize, mut visit: impl FnMut(usize, u32, u32, u8)) {
    let (vector, byte) = (column / 4, 4 * row + column % 4);
    let (mut start, mut low) = (0, 0);
    for width in planes(bits) {
        let (at, shift) = place(*width, vector, byte);
        visit(start + at, shift, low, (0xff_u16 >> (8 - width)) as u8);
        start += VECTOR * *width as usize;
        low += width;
    }
}

/// Packs a quantized row of a file as row `row` of a panel that was all zero.
pub(crate) fn pack_row<F: Format>(dtype: DType, parts: &Parts, file: &[u8], row: usize, panel: &mut [u8]) {
    for (unit, b) in file.chunks_exact(dtype.block_bytes()).enumerate() {
        let groups = if F::UNIT > 1 { 1 } else { F::GROUPS };
        for group in 0..groups {
            let (scale, minimum) = unit_halves(dtype, b, group);
            put_half(panel, parts.scales, unit * groups + group, row, scale);
            if F::MINIMUM && !F::ZERO_POINTS {
                put_half(panel, parts.minima, unit * groups + group, row, minimum);
            }
        }
        for index in 0..F::UNIT {
            let block = read_block(dtype, b, index);
            pack_block::<F>(parts, &block, unit * F::UNIT + index, row, panel);
        }
    }
}

fn put_half(panel: &mut [u8], part: usize, unit: usize, row: usize, half: u16) {
    let at = part + (unit * PANEL + row) * 2;
    panel[at..at + 2].copy_from_slice(&half.to_le_bytes());
}

fn pack_block<F: Format>(parts: &Parts, block: &Block, index: usize, row: usize, panel: &mut [u8]) {
    let start = index * VECTOR * F::BITS as usize;
    for (column, code) in block.codes.iter().enumerate() {
        pieces(F::BITS, row, column, |at, shift, low, mask| {
            panel[start + at] |= (code >> low & mask) << shift
        });
    }
    for group in 0..F::GROUPS {
        let at = (index * F::GROUPS + group) * PANEL + row;
        if F::UNIT > 1 {
            panel[parts.factors + at] = block.factors[group].cast_unsigned();
        }
        if F::UNIT > 1 && F::MINIMUM || F::ZERO_POINTS {
            panel[parts.offsets + at] = block.offsets[group].cast_unsigned();
        }
    }
}

/// Writes the values of row `row` of a quantized panel to `out`, all scales times `global`.
pub(crate) fn unpack_row<F: Format>(parts: &Parts, panel: &[u8], row: usize, global: f32, out: &mut [f32]) {
    let half = |part: usize, unit: usize| {
        let at = part + (unit * PANEL + row) * 2;
        let bytes = [panel[at], panel[at + 1]];
        if F::WIDE_SCALES {
            bf16::from_le_bytes(bytes).to_f32()
        } else {
            f16::from_le_bytes(bytes).to_f32()
        }
    };
    let small = |part: usize, index: usize| f32::from(panel[part + index * PANEL + row].cast_signed());
    let factor = |part: usize, index: usize| if F::UNIT > 1 { small(part, index) } else { 1.0 };
    for (column, out) in out.iter_mut().enumerate() {
        let block = column / BLOCK;
        let group = column % BLOCK * F::GROUPS / BLOCK;
        let index = block * F::GROUPS + group;
        let unit = if F::UNIT > 1 { block / F::UNIT } else { index };
        let scale = half(parts.scales, unit) * factor(parts.factors, index) * global;
        let start = block * VECTOR * F::BITS as usize;
        let mut code = 0;
        pieces(F::BITS, row, column % BLOCK, |at, shift, low, mask| {
            code |= (panel[start + at] >> shift & mask) << low
        });
        if F::E2M1 {
            code = E2M1[usize::from(code)];
        }
        *out = scale * (f32::from(code) - f32::from(F::ZERO));
        if F::ZERO_POINTS {
            *out -= scale * small(parts.offsets, index);
        } else if F::MINIMUM {
            let minimum = half(parts.minima, unit) * factor(parts.offsets, index);
            *out = if F::UNIT > 1 { *out - minimum } else { *out + minimum };
        }
    }
}

/// Packs a float row of a file as row `row` of a panel.
pub(crate) fn pack_float_row(bytes_each: usize, file: &[u8], row: usize, panel: &mut [u8]) {
    let columns = panel.chunks_exact_mut(PANEL * bytes_each);
    for (number, column) in file.chunks_exact(bytes_each).zip(columns) {
        column[row * bytes_each..(row + 1) * bytes_each].copy_from_slice(number);
    }
}

/// Row `row` of a float panel, as the file had it.
pub(crate) fn unpack_float_row(bytes_each: usize, panel: &[u8], row: usize, cols: usize) -> Vec<u8> {
    let columns = panel.chunks_exact(PANEL * bytes_each).take(cols);
    columns
        .flat_map(|column| &column[row * bytes_each..(row + 1) * bytes_each])
        .copied()
        .collect()
}

/// Writes the sixteen scales of run `run` of an FP8 panel.
pub(crate) fn put_scales(parts: &Parts, run: usize, scales: [f32; PANEL], panel: &mut [u8]) {
    let at = parts.scales + run * PANEL * size_of::<f32>();
    let places = panel[at..].as_chunks_mut::<4>().0;
    for (place, scale) in places.iter_mut().zip(scales) {
        *place = scale.to_le_bytes();
    }
}

/// Multiplies the numbers of row `row` of an FP8 panel by their scales.
pub(crate) fn scale_row(parts: &Parts, panel: &[u8], row: usize, out: &mut [f32]) {
    let scales = panel[parts.scales..].as_chunks::<4>().0;
    for (run, out) in out.chunks_mut(parts.scale_cols).enumerate() {
        let scale = f32::from_le_bytes(scales[run * PANEL + row]);
        out.iter_mut().for_each(|weight| *weight *= scale);
    }
}
