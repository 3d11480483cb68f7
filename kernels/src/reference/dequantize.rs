//! From a file's packed bytes to numbers, block by block.

use half::{bf16, f16};

use super::{decode_e2m1, decode_e4m3, decode_e8m0};
use crate::DType;

/// Writes the values of `bytes`, whole blocks of `dtype`, to `out`.
///
/// # Panics
/// When `out` does not have exactly the values that `bytes` hold.
pub fn dequantize(dtype: DType, bytes: &[u8], out: &mut [f32]) {
    assert_eq!(
        bytes.len(),
        dtype.row_bytes(out.len()),
        "bytes and values of {dtype:?} must agree"
    );
    assert_eq!(out.len() % dtype.block_len(), 0, "whole blocks of {dtype:?}");
    let block: fn(&[u8], &mut [f32]) = match dtype {
        DType::F32 => |b, out| out[0] = f32::from_le_bytes([b[0], b[1], b[2], b[3]]),
        DType::F16 => |b, out| out[0] = half_at(b, 0),
        DType::BF16 => |b, out| out[0] = bf16::from_le_bytes([b[0], b[1]]).to_f32(),
        DType::Q4_0 => q4_0,
        DType::Q4_1 => q4_1,
        DType::Q5_0 => q5_0,
        DType::Q5_1 => q5_1,
        DType::Q8_0 => q8_0,
        DType::Q2K => q2_k,
        DType::Q3K => q3_k,
        DType::Q4K => q4_k,
        DType::Q5K => q5_k,
        DType::Q6K => q6_k,
        DType::F8E4M3 => |b, out| out[0] = decode_e4m3(b[0]),
        DType::Mxfp4 => mxfp4,
        DType::Nvfp4 => nvfp4,
        DType::Int4 => |b, out| int4(1, b, out),
        DType::Int4G16 => |b, out| int4(2, b, out),
    };
    for (bytes, out) in bytes
        .chunks_exact(dtype.block_bytes())
        .zip(out.chunks_exact_mut(dtype.block_len()))
    {
        block(bytes, out);
    }
}

fn half_at(bytes: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()
}

/// Value `i` of 32 nibbles: the low halves come first.
fn nibble(bytes: &[u8], i: usize) -> u8 {
    if i < 16 { bytes[i] & 15 } else { bytes[i - 16] >> 4 }
}

/// Bit `i` of a little-endian bit string.
fn bit(bytes: &[u8], i: usize) -> u8 {
    bytes[i / 8] >> (i % 8) & 1
}

fn q4_0(b: &[u8], out: &mut [f32]) {
    let d = half_at(b, 0);
    for (i, out) in out.iter_mut().enumerate() {
        *out = d * (f32::from(nibble(&b[2..], i)) - 8.0);
    }
}

fn q4_1(b: &[u8], out: &mut [f32]) {
    let (d, m) = (half_at(b, 0), half_at(b, 2));
    for (i, out) in out.iter_mut().enumerate() {
        *out = d * f32::from(nibble(&b[4..], i)) + m;
    }
}

fn q5_0(b: &[u8], out: &mut [f32]) {
    let d = half_at(b, 0);
    for (i, out) in out.iter_mut().enumerate() {
        let q = nibble(&b[6..], i) | bit(&b[2..6], i) << 4;
        *out = d * (f32::from(q) - 16.0);
    }
}

fn q5_1(b: &[u8], out: &mut [f32]) {
    let (d, m) = (half_at(b, 0), half_at(b, 2));
    for (i, out) in out.iter_mut().enumerate() {
        let q = nibble(&b[8..], i) | bit(&b[4..8], i) << 4;
        *out = d * f32::from(q) + m;
    }
}

fn q8_0(b: &[u8], out: &mut [f32]) {
    let d = half_at(b, 0);
    for (i, out) in out.iter_mut().enumerate() {
        *out = d * f32::from(b[2 + i].cast_signed());
    }
}

fn q2_k(b: &[u8], out: &mut [f32]) {
    let (scales, codes) = (&b[..16], &b[16..80]);
    let (d, dmin) = (half_at(b, 80), half_at(b, 82));
    for (v, out) in out.iter_mut().enumerate() {
        let scale = scales[v / 16];
        let q = two_bits(codes, v);
        *out = d * f32::from(scale & 15) * f32::from(q) - dmin * f32::from(scale >> 4);
    }
}

/// Value `v` of 256 two-bit codes: four to a byte, 32 apart.
fn two_bits(codes: &[u8], v: usize) -> u8 {
    let (half, r) = (v / 128, v % 128);
    codes[32 * half + r % 32] >> (2 * (r / 32)) & 3
}

fn q3_k(b: &[u8], out: &mut [f32]) {
    let (high, codes, scales) = (&b[..32], &b[32..96], &b[96..108]);
    let d = half_at(b, 108);
    for (v, out) in out.iter_mut().enumerate() {
        let set = high[v % 32] >> (v / 32) & 1;
        let q = f32::from(two_bits(codes, v)) - if set == 1 { 0.0 } else { 4.0 };
        *out = d * f32::from(q3_k_scale(scales, v / 16)) * q;
    }
}

/// One of sixteen 6-bit scales, minus 32.
pub(crate) fn q3_k_scale(s: &[u8], i: usize) -> i8 {
    let low = if i < 8 { s[i] & 15 } else { s[i - 8] >> 4 };
    let high = s[8 + i % 4] >> (2 * (i / 4)) & 3;
    (low | high << 4).cast_signed() - 32
}

/// Scale and minimum of sub-block `j`, six bits each.
pub(crate) fn q4_k_scale(s: &[u8], j: usize) -> (u8, u8) {
    if j < 4 {
        (s[j] & 63, s[j + 4] & 63)
    } else {
        let high = |b: u8| b >> 6 << 4;
        (s[j + 4] & 15 | high(s[j - 4]), s[j + 4] >> 4 | high(s[j]))
    }
}

/// Nibble `v` of 256: 32 bytes hold 64 values, the low halves first.
fn k_nibble(codes: &[u8], v: usize) -> u8 {
    let byte = codes[v / 64 * 32 + v % 32];
    if v % 64 < 32 { byte & 15 } else { byte >> 4 }
}

fn q4_k(b: &[u8], out: &mut [f32]) {
    let (d, dmin) = (half_at(b, 0), half_at(b, 2));
    for (v, out) in out.iter_mut().enumerate() {
        let (scale, min) = q4_k_scale(&b[4..16], v / 32);
        let q = k_nibble(&b[16..], v);
        *out = d * f32::from(scale) * f32::from(q) - dmin * f32::from(min);
    }
}

fn q5_k(b: &[u8], out: &mut [f32]) {
    let (d, dmin) = (half_at(b, 0), half_at(b, 2));
    for (v, out) in out.iter_mut().enumerate() {
        let (scale, min) = q4_k_scale(&b[4..16], v / 32);
        let fifth = b[16 + v % 32] >> (v / 32) & 1;
        let q = k_nibble(&b[48..], v) | fifth << 4;
        *out = d * f32::from(scale) * f32::from(q) - dmin * f32::from(min);
    }
}

fn q6_k(b: &[u8], out: &mut [f32]) {
    let (low, high, scales) = (&b[..128], &b[128..192], &b[192..208]);
    let d = half_at(b, 208);
    for (v, out) in out.iter_mut().enumerate() {
        let (half, r) = (v / 128, v % 128);
        let byte = low[64 * half + r % 64];
        let nibble = if r < 64 { byte & 15 } else { byte >> 4 };
        let top = high[32 * half + r % 32] >> (2 * (r / 32)) & 3;
        let q = f32::from(nibble | top << 4) - 32.0;
        *out = d * f32::from(scales[v / 16].cast_signed()) * q;
    }
}

/// Code `v`: two a byte, the low half first.
fn pair(codes: &[u8], v: usize) -> u8 {
    codes[v / 2] >> (v % 2 * 4) & 15
}

fn mxfp4(b: &[u8], out: &mut [f32]) {
    for (v, out) in out.iter_mut().enumerate() {
        *out = decode_e2m1(pair(&b[1..], v)) * decode_e8m0(b[0]);
    }
}

fn nvfp4(b: &[u8], out: &mut [f32]) {
    for (v, out) in out.iter_mut().enumerate() {
        *out = decode_e2m1(pair(&b[2..], v)) * decode_e4m3(b[v / 16]);
    }
}

/// `groups` scales, as many zero points, then the codes.
fn int4(groups: usize, b: &[u8], out: &mut [f32]) {
    let (points, codes) = (&b[2 * groups..], &b[3 * groups..]);
    for (v, out) in out.iter_mut().enumerate() {
        let group = v * groups / 32;
        *out = (f32::from(pair(codes, v)) - f32::from(points[group])) * half_at(b, 2 * group);
    }
}
