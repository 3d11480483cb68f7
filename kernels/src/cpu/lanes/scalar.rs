//! Lanes in plain Rust: what the others must equal, and what runs where nothing better is known.

#![expect(unsafe_code, reason = "loads and stores through pointers, as the trait has them")]

use std::array::from_fn;

use half::f16;

use super::{LANES, Lanes};
use crate::reference::decode_e4m3;

/// No instruction set in particular.
#[derive(Clone, Copy)]
pub(super) struct Scalar;

impl Lanes for Scalar {
    type F = [f32; LANES];
    type I = [i32; LANES];
    type C = [u8; 4 * LANES];
    const TILE: usize = 1;

    #[inline(always)]
    fn splat(self, x: f32) -> Self::F {
        [x; LANES]
    }

    #[inline(always)]
    unsafe fn load(self, at: *const f32) -> Self::F {
        // SAFETY: the caller promises sixteen numbers; arrays may be read from any address this way.
        unsafe { at.cast::<Self::F>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn load_f16(self, at: *const u16) -> Self::F {
        // SAFETY: as in `load`.
        let bits = unsafe { at.cast::<[u16; LANES]>().read_unaligned() };
        bits.map(|bits| f16::from_bits(bits).to_f32())
    }

    #[inline(always)]
    unsafe fn load_bf16(self, at: *const u16) -> Self::F {
        // SAFETY: as in `load`.
        let bits = unsafe { at.cast::<[u16; LANES]>().read_unaligned() };
        bits.map(|bits| f32::from_bits(u32::from(bits) << 16))
    }

    #[inline(always)]
    unsafe fn load_i8(self, at: *const i8) -> Self::F {
        // SAFETY: as in `load`.
        let bytes = unsafe { at.cast::<[i8; LANES]>().read_unaligned() };
        bytes.map(f32::from)
    }

    #[inline(always)]
    unsafe fn load_e4m3(self, at: *const u8) -> Self::F {
        // SAFETY: as in `load`.
        let bytes = unsafe { at.cast::<[u8; LANES]>().read_unaligned() };
        bytes.map(decode_e4m3)
    }

    #[inline(always)]
    unsafe fn store(self, at: *mut f32, x: Self::F) {
        // SAFETY: the caller promises room for sixteen numbers.
        unsafe { at.cast::<Self::F>().write_unaligned(x) }
    }

    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        from_fn(|i| a[i] + b[i])
    }

    #[inline(always)]
    fn sub(self, a: Self::F, b: Self::F) -> Self::F {
        from_fn(|i| a[i] - b[i])
    }

    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        from_fn(|i| a[i] * b[i])
    }

    #[inline(always)]
    fn div(self, a: Self::F, b: Self::F) -> Self::F {
        from_fn(|i| a[i] / b[i])
    }

    #[inline(always)]
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        from_fn(|i| a[i].mul_add(b[i], c[i]))
    }

    #[inline(always)]
    fn max(self, a: Self::F, b: Self::F) -> Self::F {
        from_fn(|i| if a[i] > b[i] { a[i] } else { b[i] })
    }

    #[inline(always)]
    fn select_less(self, a: Self::F, b: Self::F, then: Self::F, otherwise: Self::F) -> Self::F {
        from_fn(|i| if a[i] < b[i] { then[i] } else { otherwise[i] })
    }

    #[inline(always)]
    fn power_of_two(self, n: Self::F) -> Self::F {
        from_fn(|i| f32::from_bits((((n[i] as i32) + 127) as u32) << 23))
    }

    #[inline(always)]
    fn sum(self, x: Self::F) -> f32 {
        let mut half = x;
        for width in [8, 4, 2, 1] {
            for i in 0..width {
                half[i] += half[i + width];
            }
        }
        half[0]
    }

    #[inline(always)]
    fn largest(self, x: Self::F) -> f32 {
        let mut half = x;
        for width in [8, 4, 2, 1] {
            for i in 0..width {
                half[i] = if half[i] > half[i + width] {
                    half[i]
                } else {
                    half[i + width]
                };
            }
        }
        half[0]
    }

    #[inline(always)]
    fn splat_i(self, x: i32) -> Self::I {
        [x; LANES]
    }

    #[inline(always)]
    fn to_f32(self, x: Self::I) -> Self::F {
        x.map(|x| x as f32)
    }

    #[inline(always)]
    fn no_codes(self) -> Self::C {
        [0; 4 * LANES]
    }

    #[inline(always)]
    unsafe fn load_codes(self, at: *const u8) -> Self::C {
        // SAFETY: the caller promises 64 bytes.
        unsafe { at.cast::<Self::C>().read() }
    }

    #[inline(always)]
    unsafe fn store_codes(self, at: *mut u8, x: Self::C) {
        // SAFETY: the caller promises room for 64 bytes.
        unsafe { at.cast::<Self::C>().write(x) }
    }

    #[inline(always)]
    fn bits<const SHIFT: u32, const MASK: u8>(self, x: Self::C) -> Self::C {
        x.map(|x| (x >> SHIFT) & MASK)
    }

    #[inline(always)]
    fn join<const SHIFT: u32>(self, low: Self::C, high: Self::C) -> Self::C {
        from_fn(|i| low[i] | high[i] << SHIFT)
    }

    #[inline(always)]
    fn look_up(self, x: Self::C, table: &[u8; 16]) -> Self::C {
        x.map(|x| table[usize::from(x & 15)])
    }

    #[inline(always)]
    fn dot<const WIDE: bool>(self, sum: Self::I, codes: Self::C, four: i32) -> Self::I {
        let four = four.to_le_bytes().map(|byte| i32::from(byte.cast_signed()));
        from_fn(|i| {
            let products: [i32; 4] = from_fn(|j| i32::from(codes[4 * i + j]) * four[j]);
            sum[i] + products[0] + products[1] + products[2] + products[3]
        })
    }

    #[inline(always)]
    fn byte<const INDEX: u32>(self, x: Self::C) -> Self::F {
        from_fn(|i| f32::from(x[4 * i + INDEX as usize]))
    }

    #[inline(always)]
    fn prefetch(self, _at: *const u8) {}
}
