//! Sixteen numbers at once: what a kernel may ask of an instruction set.
//!
//! Kernels are written once, against [`Lanes`], and compiled for every instruction set. A value of a type that implements
//! it is a proof that this processor has the instructions; [`Isa::run`] makes it after looking. Every operation is the
//! same IEEE operation everywhere (multiply-add is fused, sums over lanes have one shape), so results agree to the bit.
//!
//! Whatever runs under [`Isa::run`] has to be inlined into it to be compiled with the instructions: hence
//! `#[inline(always)]` on all of it, and no closures over lanes (so no `map` of arrays either): they may stay calls.
#![expect(unsafe_code, reason = "vector instructions and their loads have no safe form")]

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod element;
mod scalar;

pub(crate) use element::{BF16, E4M3, Element, F16, F32};

use super::Isa;

/// How many numbers.
pub(crate) const LANES: usize = 16;

/// An instruction set's operations on sixteen lanes of 32 bits.
pub(crate) trait Lanes: Copy + Send + Sync {
    /// Sixteen f32.
    type F: Copy;
    /// Sixteen i32.
    type I: Copy;
    /// Sixteen times four unsigned bytes.
    type C: Copy;
    /// The most accumulators a tile should have: what the registers hold beside everything else. One means that larger
    /// tiles are not worth compiling.
    const TILE: usize;

    /// The same number in every lane.
    fn splat(self, x: f32) -> Self::F;
    /// # Safety
    /// Sixteen f32 lie at `at`.
    unsafe fn load(self, at: *const f32) -> Self::F;
    /// # Safety
    /// Sixteen halves lie at `at`.
    unsafe fn load_f16(self, at: *const u16) -> Self::F;
    /// # Safety
    /// Sixteen bfloats lie at `at`.
    unsafe fn load_bf16(self, at: *const u16) -> Self::F;
    /// # Safety
    /// Sixteen i8 lie at `at`.
    unsafe fn load_i8(self, at: *const i8) -> Self::F;
    /// # Safety
    /// Sixteen E4M3 lie at `at`. What is no number has all bits set.
    unsafe fn load_e4m3(self, at: *const u8) -> Self::F;
    /// # Safety
    /// Sixteen f32 may be written at `at`.
    unsafe fn store(self, at: *mut f32, x: Self::F);

    /// a + b
    fn add(self, a: Self::F, b: Self::F) -> Self::F;
    /// a - b
    fn sub(self, a: Self::F, b: Self::F) -> Self::F;
    /// a · b
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    /// a / b
    fn div(self, a: Self::F, b: Self::F) -> Self::F;
    /// a · b + c, rounded once
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// a if a > b, else b (so b if either is no number)
    fn max(self, a: Self::F, b: Self::F) -> Self::F;
    /// `then` where a < b, else `otherwise`
    fn select_less(self, a: Self::F, b: Self::F, then: Self::F, otherwise: Self::F) -> Self::F;
    /// 2^n for whole n in -126 ..= 127
    fn power_of_two(self, n: Self::F) -> Self::F;
    /// The sum: upper half plus lower half, until one is left.
    fn sum(self, x: Self::F) -> f32;
    /// The largest.
    fn largest(self, x: Self::F) -> f32;

    /// The same integer in every lane.
    fn splat_i(self, x: i32) -> Self::I;
    /// To the nearest f32.
    fn to_f32(self, x: Self::I) -> Self::F;

    /// All bytes zero.
    fn no_codes(self) -> Self::C;
    /// # Safety
    /// 64 bytes lie at `at`.
    unsafe fn load_codes(self, at: *const u8) -> Self::C;
    /// # Safety
    /// 64 bytes may be written at `at`.
    unsafe fn store_codes(self, at: *mut u8, x: Self::C);
    /// `MASK` of every byte shifted right by `SHIFT`.
    fn bits<const SHIFT: u32, const MASK: u8>(self, x: Self::C) -> Self::C;
    /// `low` with `high` put `SHIFT` bits higher; no byte of `high` may lose bits by that.
    fn join<const SHIFT: u32>(self, low: Self::C, high: Self::C) -> Self::C;
    /// The entry of `table` that each byte, less than 16, names.
    fn look_up(self, x: Self::C, table: &[u8; 16]) -> Self::C;
    /// In every lane: sum + the products of its four unsigned bytes with the four signed bytes of `four`. `WIDE` says that
    /// codes may exceed 127.
    fn dot<const WIDE: bool>(self, sum: Self::I, codes: Self::C, four: i32) -> Self::I;
    /// Byte `INDEX` of every lane's four.
    fn byte<const INDEX: u32>(self, x: Self::C) -> Self::F;

    /// A hint that the line at `at` will be read; any address will do.
    fn prefetch(self, at: *const u8);
}

/// Something to be run with an instruction set. Implementations are `#[inline(always)]`.
pub(crate) trait Kernel {
    /// Does it.
    fn run<L: Lanes>(self, lanes: L);
}

impl Isa {
    /// The best that this processor has.
    pub fn detect() -> Self {
        [Isa::Avx512, Isa::Avx2]
            .into_iter()
            .find(|isa| isa.available())
            .unwrap_or(Isa::Scalar)
    }

    /// Whether this processor has it.
    #[cfg(target_arch = "x86_64")]
    pub fn available(self) -> bool {
        match self {
            Isa::Scalar => true,
            Isa::Avx2 => avx2::Avx2::detect().is_some(),
            Isa::Avx512 => avx512::Avx512::detect().is_some(),
        }
    }

    /// Whether this processor has it.
    #[cfg(not(target_arch = "x86_64"))]
    pub fn available(self) -> bool {
        self == Isa::Scalar
    }

    /// Runs a kernel with this instruction set, or with plain Rust where the processor lacks it.
    pub(crate) fn run(self, kernel: impl Kernel) {
        #[cfg(target_arch = "x86_64")]
        match self {
            Isa::Avx512 => {
                if let Some(lanes) = avx512::Avx512::detect() {
                    // SAFETY: `detect` found the features that the function is compiled for.
                    return unsafe { avx512::run(lanes, kernel) };
                }
            }
            Isa::Avx2 => {
                if let Some(lanes) = avx2::Avx2::detect() {
                    // SAFETY: `detect` found the features that the function is compiled for.
                    return unsafe { avx2::run(lanes, kernel) };
                }
            }
            Isa::Scalar => {}
        }
        kernel.run(scalar::Scalar);
    }
}

#[cfg(test)]
mod tests;
