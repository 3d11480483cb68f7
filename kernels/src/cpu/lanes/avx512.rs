//! Lanes as one 512-bit register.
#![expect(unsafe_code, reason = "intrinsics")]

use std::arch::x86_64::*;

use super::{Kernel, Lanes};

/// Proof that the processor has AVX-512 F, BW, DQ, VL and VNNI.
#[derive(Clone, Copy)]
pub(super) struct Avx512(());

impl Avx512 {
    /// Looks.
    pub(super) fn detect() -> Option<Self> {
        let found = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512vnni")
            && is_x86_feature_detected!("fma");
        found.then_some(Self(()))
    }
}

/// Runs a kernel compiled for these features.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma,f16c,avx2")]
pub(super) fn run(lanes: Avx512, kernel: impl Kernel) {
    kernel.run(lanes);
}

/// A shift count as the shift instructions take it; a constant becomes an immediate.
#[inline(always)]
fn count(shift: u32) -> __m128i {
    // SAFETY: SSE2 is part of x86-64.
    unsafe { _mm_cvtsi32_si128(shift as i32) }
}

impl Lanes for Avx512 {
    type F = __m512;
    type I = __m512i;
    type C = __m512i;
    const TILE: usize = 16;

    #[inline(always)]
    fn splat(self, x: f32) -> __m512 {
        // SAFETY: `self` proves the instruction exists.
        unsafe { _mm512_set1_ps(x) }
    }

    #[inline(always)]
    unsafe fn load(self, at: *const f32) -> __m512 {
        // SAFETY: `self` proves the instruction; the caller promises the memory.
        unsafe { _mm512_loadu_ps(at) }
    }

    #[inline(always)]
    unsafe fn load_f16(self, at: *const u16) -> __m512 {
        // SAFETY: `self` proves the instruction; the caller promises the memory.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(at.cast())) }
    }

    #[inline(always)]
    unsafe fn load_bf16(self, at: *const u16) -> __m512 {
        // SAFETY: `self` proves the instruction; the caller promises the memory.
        unsafe {
            let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(at.cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
        }
    }

    #[inline(always)]
    unsafe fn load_i8(self, at: *const i8) -> __m512 {
        // SAFETY: `self` proves the instruction; the caller promises the memory.
        unsafe { _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(at.cast()))) }
    }

    #[inline(always)]
    unsafe fn load_e4m3(self, at: *const u8) -> __m512 {
        // SAFETY: `self` proves the instructions; the caller promises the memory.
        unsafe {
            let bytes = _mm_loadu_si128(at.cast());
            let size = _mm_and_si128(bytes, _mm_set1_epi8(0x7f));
            let some = _mm_cmpneq_epi8_mask(size, _mm_set1_epi8(0x7f));
            // As halves, whose exponents are biased by eight more: the sign stays above, the rest moves down by one.
            let spread = _mm256_srai_epi16::<1>(_mm256_slli_epi16::<8>(_mm256_cvtepu8_epi16(bytes)));
            let halves = _mm256_and_si256(spread, _mm256_set1_epi16(0xbfff_u16.cast_signed()));
            let none = _mm512_castsi512_ps(_mm512_set1_epi32(-1));
            _mm512_mask_mul_ps(none, some, _mm512_cvtph_ps(halves), _mm512_set1_ps(256.0))
        }
    }

    #[inline(always)]
    unsafe fn store(self, at: *mut f32, x: __m512) {
        // SAFETY: `self` proves the instruction; the caller promises the memory.
        unsafe { _mm512_storeu_ps(at, x) }
    }

    #[inline(always)]
    fn add(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: `self` proves the instruction exists.
        unsafe { _mm512_add_ps(a, b) }
    }

    #[inline(always)]
    fn sub(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: `self` proves the instruction exists.
        unsafe { _mm512_sub_ps(a, b) }
    }

    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: `self` proves the instruction exists.
        unsafe { _mm512_mul_ps(a, b) }
    }

    #[inline(always)]
    fn div(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: `self` proves the instruction exists.
        unsafe { _mm512_div_ps(a, b) }
    }

    #[inline(always)]
    fn fma(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        // SAFETY: `self` proves the instruction exists.
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    fn max(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: `self` proves the instruction exists.
        unsafe { _mm512_max_ps(a, b) }
    }

    #[inline(always)]
    fn select_less(self, a: __m512, b: __m512, then: __m512, otherwise: __m512) -> __m512 {
        // SAFETY: `self` proves the instructions exist.
        unsafe { _mm512_mask_blend_ps(_mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b), otherwise, then) }
    }

    #[inline(always)]
    fn power_of_two(self, n: __m512) -> __m512 {
        // SAFETY: `self` proves the instructions exist.
        unsafe {
            let biased = _mm512_add_epi32(_mm512_cvttps_epi32(n), _mm512_set1_epi32(127));
            _mm512_castsi512_ps(_mm512_slli_epi32::<23>(biased))
        }
    }

    #[inline(always)]
    fn sum(self, x: __m512) -> f32 {
        // SAFETY: `self` proves the instructions exist.
        unsafe {
            let half = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps::<1>(x));
            let quarter = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps::<1>(half));
            let pair = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
            _mm_cvtss_f32(_mm_add_ss(pair, _mm_movehdup_ps(pair)))
        }
    }

    #[inline(always)]
    fn largest(self, x: __m512) -> f32 {
        // SAFETY: `self` proves the instructions exist.
        unsafe {
            let half = _mm256_max_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps::<1>(x));
            let quarter = _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps::<1>(half));
            let pair = _mm_max_ps(quarter, _mm_movehl_ps(quarter, quarter));
            _mm_cvtss_f32(_mm_max_ss(pair, _mm_movehdup_ps(pair)))
        }
    }

    #[inline(always)]
    fn splat_i(self, x: i32) -> __m512i {
        // SAFETY: `self` proves the instruction exists.
        unsafe { _mm512_set1_epi32(x) }
    }

    #[inline(always)]
    fn to_f32(self, x: __m512i) -> __m512 {
        // SAFETY: `self` proves the instruction exists.
        unsafe { _mm512_cvtepi32_ps(x) }
    }

    #[inline(always)]
    fn no_codes(self) -> Self::C {
        // SAFETY: `self` proves the instruction exists.
        unsafe { _mm512_setzero_si512() }
    }

    #[inline(always)]
    unsafe fn load_codes(self, at: *const u8) -> __m512i {
        // SAFETY: `self` proves the instruction; the caller promises the memory.
        unsafe { _mm512_loadu_si512(at.cast()) }
    }

    #[inline(always)]
    unsafe fn store_codes(self, at: *mut u8, x: __m512i) {
        // SAFETY: `self` proves the instruction; the caller promises the memory.
        unsafe { _mm512_storeu_si512(at.cast(), x) }
    }

    #[inline(always)]
    fn bits<const SHIFT: u32, const MASK: u8>(self, x: __m512i) -> __m512i {
        // SAFETY: `self` proves the instructions exist. Bits that cross a byte are outside the mask.
        unsafe {
            let shifted = if SHIFT == 0 {
                x
            } else {
                _mm512_srl_epi16(x, count(SHIFT))
            };
            _mm512_and_si512(shifted, _mm512_set1_epi8(MASK.cast_signed()))
        }
    }

    #[inline(always)]
    fn join<const SHIFT: u32>(self, low: __m512i, high: __m512i) -> __m512i {
        // SAFETY: `self` proves the instructions exist.
        unsafe { _mm512_or_si512(low, _mm512_sll_epi16(high, count(SHIFT))) }
    }

    #[inline(always)]
    fn look_up(self, x: __m512i, table: &[u8; 16]) -> __m512i {
        // SAFETY: `self` proves the instructions exist; the table has the sixteen bytes that are loaded.
        unsafe {
            let table = _mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast()));
            _mm512_shuffle_epi8(table, x)
        }
    }

    #[inline(always)]
    fn dot<const WIDE: bool>(self, sum: __m512i, codes: __m512i, four: i32) -> __m512i {
        // SAFETY: `self` proves the instruction exists. It does not saturate.
        unsafe { _mm512_dpbusd_epi32(sum, codes, _mm512_set1_epi32(four)) }
    }

    #[inline(always)]
    fn byte<const INDEX: u32>(self, x: __m512i) -> __m512 {
        // SAFETY: `self` proves the instructions exist.
        unsafe {
            let shifted = _mm512_srl_epi32(x, count(8 * INDEX));
            _mm512_cvtepi32_ps(_mm512_and_si512(shifted, _mm512_set1_epi32(255)))
        }
    }

    #[inline(always)]
    fn prefetch(self, at: *const u8) {
        // SAFETY: a prefetch of any address is harmless.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
    }
}
