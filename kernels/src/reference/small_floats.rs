//! Numbers of eight and four bits: E4M3, E2M1 and the powers of two of E8M0.
//!
//! ```text
//!   E4M3   s eeee mmm   bias 7, no infinities, 0x7f and 0xff are no numbers, largest 448
//!   E2M1   s ee m       0 0.5 1 1.5 2 3 4 6
//!   E8M0   eeeeeeee     2^(e - 127), 0xff is no number
//! ```

/// The sizes that E2M1 has.
const E2M1_SIZES: [f32; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
/// The largest number of E4M3.
pub const E4M3_MAX: f32 = 448.0;
/// The largest number of E2M1.
pub const E2M1_MAX: f32 = 6.0;
/// Adding it rounds to the nearest whole number, to the even one of two, which then is the low byte of the sum's bits.
const ROUND: f32 = 12_582_912.0;

/// The number of an E4M3 byte; one with all bits set for what is no number.
pub fn decode_e4m3(byte: u8) -> f32 {
    let (size, sign) = (byte & 0x7f, u32::from(byte & 0x80) << 24);
    if size == 0x7f {
        return f32::from_bits(u32::MAX);
    }
    let size = match size >> 3 {
        0 => f32::from(size) / 512.0,
        // The exponent moves from bias 7 to bias 127.
        _ => f32::from_bits((u32::from(size) + (120 << 3)) << 20),
    };
    f32::from_bits(size.to_bits() | sign)
}

/// The nearest E4M3 number, the even one of two, at most 448.
#[inline]
pub fn encode_e4m3(x: f32) -> u8 {
    /// The smallest number with a full mantissa is 2^-6.
    const NORMAL: u32 = (127 - 6) << 23;
    const LARGEST: u32 = E4M3_MAX.to_bits();
    let bits = x.to_bits();
    let sign = (bits >> 24) as u8 & 0x80;
    let size = bits & 0x7fff_ffff;
    let below = (f32::from_bits(size) * 512.0 + ROUND).to_bits() as u8;
    let limited = size.min(LARGEST);
    let rounded = limited + 0x7_ffff + (limited >> 20 & 1);
    let normal = (rounded >> 20).wrapping_sub(120 << 3) as u8;
    let code = if size < NORMAL { below } else { normal };
    sign | if x.is_nan() { 0x7f } else { code }
}

/// The number of an E2M1 code.
pub fn decode_e2m1(code: u8) -> f32 {
    let size = E2M1_SIZES[usize::from(code & 7)];
    if code & 8 == 0 { size } else { -size }
}

/// The nearest E2M1 code, the even one of two, at most 6 in size; zero has no sign.
pub fn encode_e2m1(x: f32) -> u8 {
    /// Halfway points between neighbours, and whether they belong to the upper one.
    const LIMITS: [(f32, bool); 7] = [
        (0.25, false),
        (0.75, true),
        (1.25, false),
        (1.75, true),
        (2.5, false),
        (3.5, true),
        (5.0, false),
    ];
    let size = x.abs();
    let passed = |(limit, upper): &&(f32, bool)| size > *limit || *upper && size == *limit;
    let code = LIMITS.iter().filter(passed).count() as u8;
    if x < 0.0 && code > 0 { code | 8 } else { code }
}

/// The power of two of an E8M0 byte.
pub fn decode_e8m0(byte: u8) -> f32 {
    match byte {
        0 => f32::from_bits(1 << 22),
        0xff => f32::NAN,
        _ => f32::from_bits(u32::from(byte) << 23),
    }
}
