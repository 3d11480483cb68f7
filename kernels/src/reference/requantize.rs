//! From numbers to four bits: how files of NVFP4 and MXFP4 are made, and how one becomes the other.

use super::small_floats::{E2M1_MAX, decode_e4m3, decode_e8m0, encode_e2m1, encode_e4m3};

/// Codes in pairs, the even column in the low half, and a scale for each group of a row.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FourBits {
    /// Two codes a byte.
    pub codes: Vec<u8>,
    /// E4M3 for 16 columns of NVFP4, E8M0 for 32 of MXFP4.
    pub scales: Vec<u8>,
}

/// Rounds a row to NVFP4 under a scale for all; the scale that uses all of E4M3 is the row's largest size / (448 · 6).
///
/// # Panics
/// When the row is not a whole number of 16 columns.
pub fn quantize_nvfp4(row: &[f32], global: f32) -> FourBits {
    quantize(row, 16, |largest| {
        let scale = encode_e4m3(largest / E2M1_MAX / global);
        (scale, decode_e4m3(scale) * global)
    })
}

/// Rounds a row to MXFP4: the largest number of a block gets the exponent of 4.
///
/// # Panics
/// When the row is not a whole number of 32 columns.
pub fn quantize_mxfp4(row: &[f32]) -> FourBits {
    quantize(row, 32, |largest| {
        // The exponent of the largest, as it stands in its bits, less the two of 4.
        let scale = ((largest.to_bits() >> 23) as u8).saturating_sub(2);
        (scale, decode_e8m0(scale))
    })
}

/// A row of NVFP4 as one of MXFP4.
///
/// # Panics
/// When the row is not a whole number of 32 columns, or codes and scales do not fit each other.
pub fn nvfp4_to_mxfp4(row: &FourBits, global: f32) -> FourBits {
    assert_eq!(row.codes.len(), row.scales.len() * 8, "a scale for 16 codes");
    let number = |column: usize| {
        let code = row.codes[column / 2] >> (column % 2 * 4);
        super::decode_e2m1(code) * decode_e4m3(row.scales[column / 16]) * global
    };
    let numbers: Vec<f32> = (0..row.codes.len() * 2).map(number).collect();
    quantize_mxfp4(&numbers)
}

/// Rounds groups of `len` columns, for each of which `choose` finds a scale's byte and number from the largest size.
fn quantize(row: &[f32], len: usize, choose: impl Fn(f32) -> (u8, f32)) -> FourBits {
    assert_eq!(row.len() % len, 0, "whole groups of {len}");
    let mut out = FourBits::default();
    for group in row.chunks_exact(len) {
        let largest = group.iter().fold(0.0f32, |largest, x| largest.max(x.abs()));
        let (byte, scale) = choose(largest);
        let code = |x: f32| if scale > 0.0 { encode_e2m1(x / scale) } else { 0 };
        out.scales.push(byte);
        out.codes
            .extend(group.chunks_exact(2).map(|pair| code(pair[0]) | code(pair[1]) << 4));
    }
    out
}
