//! Lanes as two 256-bit registers.
#![expect(unsafe_code, reason = "intrinsics")]

use std::arch::x86_64::*;

use super::{Kernel, Lanes};

/// Proof that the processor has AVX2, FMA and F16C.
#[derive(Clone, Copy)]
pub(super) struct Avx2(());

impl Avx2 {
    /// Looks.
    pub(super) fn detect() -> Option<Self> {
        let found =
            is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c");
        found.then_some(Self(()))
    }
}

/// Runs a kernel compiled for these features.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn run(lanes: Avx2, kernel: impl Kernel) {
    kernel.run(lanes);
}

/// A shift count as the shift instructions take it; a constant becomes an immediate.
#[inline(always)]
fn count(shift: u32) -> __m128i {
    // SAFETY: SSE2 is part of x86-64.
    unsafe { _mm_cvtsi32_si128(shift as i32) }
}

/// Lanes 0 to 7 and 8 to 15.
type Floats = [__m256; 2];
/// Lanes 0 to 7 and 8 to 15.
type Integers = [__m256i; 2];

/// The same for both halves. A closure would not do: it might not be inlined, and then lacks the instructions.
macro_rules! both {
    ($half:ident => $result:expr) => {
        [
            {
                const $half: usize = 0;
                $result
            },
            {
                const $half: usize = 1;
                $result
            },
        ]
    };
}

impl Lanes for Avx2 {
    type F = Floats;
    type I = Integers;
    type C = Integers;
    const TILE: usize = 4;

    #[inline(always)]
    fn splat(self, x: f32) -> Floats {
        // SAFETY: `self` proves the instruction exists.
        unsafe { [_mm256_set1_ps(x); 2] }
    }

    #[inline(always)]
    unsafe fn load(self, at: *const f32) -> Floats {
        // SAFETY: `self` proves the instructions; the caller promises the memory.
        unsafe { both!(H => _mm256_loadu_ps(at.add(8 * H))) }
    }

    #[inline(always)]
    unsafe fn load_f16(self, at: *const u16) -> Floats {
        // SAFETY: `self` proves the instructions; the caller promises the memory.
        unsafe { both!(H => _mm256_cvtph_ps(_mm_loadu_si128(at.add(8 * H).cast()))) }
    }

    #[inline(always)]
    unsafe fn load_bf16(self, at: *const u16) -> Floats {
        // SAFETY: `self` proves the instructions; the caller promises the memory.
        unsafe {
            both!(H => {
                let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(at.add(8 * H).cast()));
                _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
            })
        }
    }

    #[inline(always)]
    unsafe fn load_i8(self, at: *const i8) -> Floats {
        // SAFETY: `self` proves the instructions; the caller promises the memory.
        unsafe { both!(H => _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(at.add(8 * H).cast())))) }
    }

    #[inline(always)]
    unsafe fn load_e4m3(self, at: *const u8) -> Floats {
        // SAFETY: `self` proves the instructions; the caller promises the memory.
        unsafe {
            both!(H => {
                let bytes = _mm_cvtepu8_epi16(_mm_loadl_epi64(at.add(8 * H).cast()));
                let size = _mm_and_si128(bytes, _mm_set1_epi16(0x7f));
                // As halves, whose exponents are biased by eight more.
                let sign = _mm_slli_epi16::<8>(_mm_and_si128(bytes, _mm_set1_epi16(0x80)));
                let halves = _mm_or_si128(sign, _mm_slli_epi16::<7>(size));
                let numbers = _mm256_mul_ps(_mm256_cvtph_ps(halves), _mm256_set1_ps(256.0));
                let none = _mm_cmpeq_epi16(size, _mm_set1_epi16(0x7f));
                _mm256_or_ps(numbers, _mm256_castsi256_ps(_mm256_cvtepi16_epi32(none)))
            })
        }
    }

    #[inline(always)]
    unsafe fn store(self, at: *mut f32, x: Floats) {
        // SAFETY: `self` proves the instruction; the caller promises the memory.
        unsafe {
            _mm256_storeu_ps(at, x[0]);
            _mm256_storeu_ps(at.add(8), x[1]);
        }
    }

    #[inline(always)]
    fn add(self, a: Floats, b: Floats) -> Floats {
        // SAFETY: `self` proves the instructions exist.
        unsafe { both!(H => _mm256_add_ps(a[H], b[H])) }
    }

    #[inline(always)]
    fn sub(self, a: Floats, b: Floats) -> Floats {
        // SAFETY: `self` proves the instructions exist.
        unsafe { both!(H => _mm256_sub_ps(a[H], b[H])) }
    }

    #[inline(always)]
    fn mul(self, a: Floats, b: Floats) -> Floats {
        // SAFETY: `self` proves the instructions exist.
        unsafe { both!(H => _mm256_mul_ps(a[H], b[H])) }
    }

    #[inline(always)]
    fn div(self, a: Floats, b: Floats) -> Floats {
        // SAFETY: `self` proves the instructions exist.
        unsafe { both!(H => _mm256_div_ps(a[H], b[H])) }
    }

    #[inline(always)]
    fn fma(self, a: Floats, b: Floats, c: Floats) -> Floats {
        // SAFETY: `self` proves the instructions exist.
        unsafe { both!(H => _mm256_fmadd_ps(a[H], b[H], c[H])) }
    }

    #[inline(always)]
    fn max(self, a: Floats, b: Floats) -> Floats {
        // SAFETY: `self` proves the instructions exist.
        unsafe { both!(H => _mm256_max_ps(a[H], b[H])) }
    }

    #[inline(always)]
    fn select_less(self, a: Floats, b: Floats, then: Floats, otherwise: Floats) -> Floats {
        // SAFETY: `self` proves the instructions exist.
        unsafe { both!(H => _mm256_blendv_ps(otherwise[H], then[H], _mm256_cmp_ps::<_CMP_LT_OQ>(a[H], b[H]))) }
    }

    #[inline(always)]
    fn power_of_two(self, n: Floats) -> Floats {
        // SAFETY: `self` proves the instructions exist.
        unsafe {
            both!(H => {
                let biased = _mm256_add_epi32(_mm256_cvttps_epi32(n[H]), _mm256_set1_epi32(127));
                _mm256_castsi256_ps(_mm256_slli_epi32::<23>(biased))
            })
        }
    }

    #[inline(always)]
    fn sum(self, x: Floats) -> f32 {
        // SAFETY: `self` proves the instructions exist.
        unsafe {
            let half = _mm256_add_ps(x[0], x[1]);
            let quarter = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps::<1>(half));
            let pair = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
            _mm_cvtss_f32(_mm_add_ss(pair, _mm_movehdup_ps(pair)))
        }
    }

    #[inline(always)]
    fn largest(self, x: Floats) -> f32 {
        // SAFETY: `self` proves the instructions exist.
        unsafe {
            let half = _mm256_max_ps(x[0], x[1]);
            let quarter = _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps::<1>(half));
            let pair = _mm_max_ps(quarter, _mm_movehl_ps(quarter, quarter));
            _mm_cvtss_f32(_mm_max_ss(pair, _mm_movehdup_ps(pair)))
        }
    }

    #[inline(always)]
    fn splat_i(self, x: i32) -> Integers {
        // SAFETY: `self` proves the instruction exists.
        unsafe { [_mm256_set1_epi32(x); 2] }
    }

    #[inline(always)]
    fn to_f32(self, x: Integers) -> Floats {
        // SAFETY: `self` proves the instructions exist.
        unsafe { both!(H => _mm256_cvtepi32_ps(x[H])) }
    }

    #[inline(always)]
    fn no_codes(self) -> Self::C {
        // SAFETY: `self` proves the instruction exists.
        unsafe { [_mm256_setzero_si256(); 2] }
    }

    #[inline(always)]
    unsafe fn load_codes(self, at: *const u8) -> Integers {
        // SAFETY: `self` proves the instructions; the caller promises the memory.
        unsafe { both!(H => _mm256_loadu_si256(at.add(32 * H).cast())) }
    }

    #[inline(always)]
    unsafe fn store_codes(self, at: *mut u8, x: Integers) {
        // SAFETY: `self` proves the instruction; the caller promises the memory.
        unsafe {
            _mm256_storeu_si256(at.cast(), x[0]);
            _mm256_storeu_si256(at.add(32).cast(), x[1]);
        }
    }

    #[inline(always)]
    fn bits<const SHIFT: u32, const MASK: u8>(self, x: Integers) -> Integers {
        // SAFETY: `self` proves the instructions exist. Bits that cross a byte are outside the mask.
        unsafe {
            both!(H => {
                let shifted = if SHIFT == 0 { x[H] } else { _mm256_srl_epi16(x[H], count(SHIFT)) };
                _mm256_and_si256(shifted, _mm256_set1_epi8(MASK.cast_signed()))
            })
        }
    }

    #[inline(always)]
    fn join<const SHIFT: u32>(self, low: Integers, high: Integers) -> Integers {
        // SAFETY: `self` proves the instructions exist.
        unsafe { both!(H => _mm256_or_si256(low[H], _mm256_sll_epi16(high[H], count(SHIFT)))) }
    }

    #[inline(always)]
    fn look_up(self, x: Integers, table: &[u8; 16]) -> Integers {
        // SAFETY: `self` proves the instructions exist; the table has the sixteen bytes that are loaded.
        unsafe {
            let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
            both!(H => _mm256_shuffle_epi8(table, x[H]))
        }
    }

    #[inline(always)]
    fn dot<const WIDE: bool>(self, sum: Integers, codes: Integers, four: i32) -> Integers {
        [
            dot::<WIDE>(self, sum[0], codes[0], four),
            dot::<WIDE>(self, sum[1], codes[1], four),
        ]
    }

    #[inline(always)]
    fn byte<const INDEX: u32>(self, x: Integers) -> Floats {
        // SAFETY: `self` proves the instructions exist.
        unsafe {
            both!(H => {
                let shifted = _mm256_srl_epi32(x[H], count(8 * INDEX));
                _mm256_cvtepi32_ps(_mm256_and_si256(shifted, _mm256_set1_epi32(255)))
            })
        }
    }

    #[inline(always)]
    fn prefetch(self, at: *const u8) {
        // SAFETY: a prefetch of any address is harmless.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
    }
}

/// Sums of four products in eight lanes. Pairs of products are added in 16 bits, which hold 2·127·127; wider codes are
/// taken apart into nibbles.
#[inline(always)]
fn dot<const WIDE: bool>(_proof: Avx2, sum: __m256i, codes: __m256i, four: i32) -> __m256i {
    // SAFETY: `_proof` shows that the instructions exist.
    unsafe {
        let four = _mm256_set1_epi32(four);
        if !WIDE {
            let pairs = _mm256_maddubs_epi16(codes, four);
            return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
        }
        let mask = _mm256_set1_epi8(15);
        let low = _mm256_maddubs_epi16(_mm256_and_si256(codes, mask), four);
        let high = _mm256_maddubs_epi16(_mm256_and_si256(_mm256_srli_epi16::<4>(codes), mask), four);
        let low = _mm256_madd_epi16(low, _mm256_set1_epi16(1));
        let high = _mm256_madd_epi16(high, _mm256_set1_epi16(16));
        _mm256_add_epi32(sum, _mm256_add_epi32(low, high))
    }
}
