//! Where a tile's weights come from: the packed panel, or a scratch copy unpacked once for many tokens.
#![expect(unsafe_code, reason = "vector loads through pointers")]

use crate::cpu::lanes::{LANES, Lanes};
use crate::matrix::layout::{E2M1, Format, Parts, VECTOR, VECTORS};

/// Blocks of one panel, ready to be multiplied. A weight is scale·(code - zero) + minimum.
pub(super) trait Source: Copy {
    /// Groups of a block, each with its scale.
    const GROUPS: usize;
    /// Whether there are minima.
    const MINIMUM: bool;
    /// Whether codes may exceed 127.
    const WIDE: bool;

    /// The code that stands for zero.
    fn zero(self) -> u8;

    /// The codes of a block.
    ///
    /// # Safety
    /// The panel has this block.
    unsafe fn codes<L: Lanes>(self, l: L, block: usize) -> [L::C; VECTORS];

    /// The scale of a block's group.
    ///
    /// # Safety
    /// The panel has this block.
    unsafe fn scale<L: Lanes>(self, l: L, block: usize, group: usize) -> L::F;

    /// The minimum of a block's group, of a format that has minima.
    ///
    /// # Safety
    /// The panel has this block.
    unsafe fn minimum<L: Lanes>(self, l: L, block: usize, group: usize) -> L::F;
}

/// A panel as it is stored.
#[derive(Clone, Copy)]
pub(super) struct Packed<'a, F> {
    start: *const u8,
    parts: &'a Parts,
    format: std::marker::PhantomData<F>,
}

/// How far ahead of its use packed memory is asked for.
pub(super) const AHEAD: usize = 8192;

impl<'a, F: Format> Packed<'a, F> {
    pub(super) fn new(panel: &'a [u8], parts: &'a Parts) -> Self {
        assert!(panel.len() >= parts.bytes, "a whole panel");
        Self {
            start: panel.as_ptr(),
            parts,
            format: std::marker::PhantomData,
        }
    }
}

/// A sixteen-lane product of a 16-bit scale and, in formats that have them, an i8 factor.
#[inline(always)]
unsafe fn scaled<L: Lanes, F: Format>(l: L, halves: *const u8, factors: *const u8, block: usize, group: usize) -> L::F {
    // SAFETY: the caller has both parts of the panel, for this block.
    unsafe {
        let index = block * F::GROUPS + group;
        let unit = if F::UNIT == 1 { index } else { block / F::UNIT };
        let at = halves.add(unit * LANES * 2).cast();
        let scale = if F::WIDE_SCALES {
            l.load_bf16(at)
        } else {
            l.load_f16(at)
        };
        if F::UNIT == 1 {
            return scale;
        }
        let factor = l.load_i8(factors.add(index * LANES).cast());
        l.mul(scale, factor)
    }
}

impl<F: Format> Source for Packed<'_, F> {
    const GROUPS: usize = F::GROUPS;
    const MINIMUM: bool = F::MINIMUM;
    const WIDE: bool = F::BITS == 8;

    #[inline(always)]
    fn zero(self) -> u8 {
        F::ZERO
    }

    #[inline(always)]
    unsafe fn codes<L: Lanes>(self, l: L, block: usize) -> [L::C; VECTORS] {
        let at = self.start.wrapping_add(block * VECTOR * F::BITS as usize);
        for line in 0..F::BITS as usize {
            l.prefetch(at.wrapping_add(AHEAD + line * VECTOR));
        }
        // SAFETY: the panel has this block, of `BITS` vectors.
        unsafe { unpack::<L, F>(l, at) }
    }

    #[inline(always)]
    unsafe fn scale<L: Lanes>(self, l: L, block: usize, group: usize) -> L::F {
        // SAFETY: the panel has this block, and every format has scales and, if it refines them, factors.
        unsafe {
            let (scales, factors) = (self.start.add(self.parts.scales), self.start.add(self.parts.factors));
            scaled::<L, F>(l, scales, factors, block, group)
        }
    }

    #[inline(always)]
    unsafe fn minimum<L: Lanes>(self, l: L, block: usize, group: usize) -> L::F {
        // SAFETY: the panel has this block, and the caller asks only where the format has minima.
        unsafe {
            let (minima, offsets) = (self.start.add(self.parts.minima), self.start.add(self.parts.offsets));
            if F::ZERO_POINTS {
                let points = l.load_i8(offsets.add((block * F::GROUPS + group) * LANES).cast());
                return l.sub(l.splat(0.0), l.mul(self.scale(l, block, group), points));
            }
            let minimum = scaled::<L, F>(l, minima, offsets, block, group);
            if F::UNIT == 1 {
                minimum
            } else {
                l.sub(l.splat(0.0), minimum)
            }
        }
    }
}

/// The eight vectors of a block's codes out of its planes.
#[inline(always)]
unsafe fn unpack<L: Lanes, F: Format>(l: L, at: *const u8) -> [L::C; VECTORS] {
    // SAFETY: `BITS` vectors lie at `at`: a plane of w bits is w of them, and planes follow each other.
    unsafe {
        match F::BITS {
            2 => plane2(l, at),
            3 => join::<L, 2>(l, plane2(l, at), plane1(l, at.add(2 * VECTOR))),
            4 if F::E2M1 => look_up(l, plane4(l, at), &E2M1),
            4 => plane4(l, at),
            5 => join::<L, 4>(l, plane4(l, at), plane1(l, at.add(4 * VECTOR))),
            6 => join::<L, 4>(l, plane4(l, at), plane2(l, at.add(4 * VECTOR))),
            _ => plane8(l, at),
        }
    }
}

#[inline(always)]
fn look_up<L: Lanes>(l: L, codes: [L::C; VECTORS], table: &[u8; 16]) -> [L::C; VECTORS] {
    let mut looked_up = codes;
    for code in &mut looked_up {
        *code = l.look_up(*code, table);
    }
    looked_up
}

#[inline(always)]
fn join<L: Lanes, const SHIFT: u32>(l: L, low: [L::C; VECTORS], high: [L::C; VECTORS]) -> [L::C; VECTORS] {
    let mut codes = low;
    for (code, high) in codes.iter_mut().zip(high) {
        *code = l.join::<SHIFT>(*code, high);
    }
    codes
}

#[inline(always)]
unsafe fn plane8<L: Lanes>(l: L, at: *const u8) -> [L::C; VECTORS] {
    let mut v = [l.no_codes(); 8];
    for (i, v) in v.iter_mut().enumerate() {
        // SAFETY: the caller has eight vectors there.
        *v = unsafe { l.load_codes(at.add(i * VECTOR)) };
    }
    v
}

#[inline(always)]
unsafe fn plane4<L: Lanes>(l: L, at: *const u8) -> [L::C; VECTORS] {
    let mut v = [l.no_codes(); 4];
    for (i, v) in v.iter_mut().enumerate() {
        // SAFETY: the caller has four vectors there.
        *v = unsafe { l.load_codes(at.add(i * VECTOR)) };
    }
    [
        l.bits::<0, 15>(v[0]),
        l.bits::<0, 15>(v[1]),
        l.bits::<0, 15>(v[2]),
        l.bits::<0, 15>(v[3]),
        l.bits::<4, 15>(v[0]),
        l.bits::<4, 15>(v[1]),
        l.bits::<4, 15>(v[2]),
        l.bits::<4, 15>(v[3]),
    ]
}

#[inline(always)]
unsafe fn plane2<L: Lanes>(l: L, at: *const u8) -> [L::C; VECTORS] {
    // SAFETY: the caller has two vectors there.
    let v = unsafe { [l.load_codes(at), l.load_codes(at.add(VECTOR))] };
    [
        l.bits::<0, 3>(v[0]),
        l.bits::<2, 3>(v[0]),
        l.bits::<4, 3>(v[0]),
        l.bits::<6, 3>(v[0]),
        l.bits::<0, 3>(v[1]),
        l.bits::<2, 3>(v[1]),
        l.bits::<4, 3>(v[1]),
        l.bits::<6, 3>(v[1]),
    ]
}

#[inline(always)]
unsafe fn plane1<L: Lanes>(l: L, at: *const u8) -> [L::C; VECTORS] {
    // SAFETY: the caller has a vector there.
    let v = unsafe { l.load_codes(at) };
    [
        l.bits::<0, 1>(v),
        l.bits::<1, 1>(v),
        l.bits::<2, 1>(v),
        l.bits::<3, 1>(v),
        l.bits::<4, 1>(v),
        l.bits::<5, 1>(v),
        l.bits::<6, 1>(v),
        l.bits::<7, 1>(v),
    ]
}

/// A panel unpacked to scratch memory: per block eight vectors of codes, then scales and minima as f32. Formats with the
/// same constants are the same here, which keeps the number of compiled loops small.
#[derive(Clone, Copy)]
pub(super) struct Unpacked<const GROUPS: usize, const MINIMUM: bool, const WIDE: bool> {
    start: *const u8,
    zero: u8,
}

/// Bytes of an unpacked block.
pub(super) const fn unpacked_bytes(groups: usize, minimum: bool) -> usize {
    VECTOR * (VECTORS + groups * (1 + minimum as usize))
}

/// Unpacks all blocks of a panel into `scratch`.
#[inline(always)]
pub(super) fn unpack_panel<L: Lanes, S: Source>(l: L, from: S, blocks: usize, scratch: &mut [u8]) {
    let bytes = unpacked_bytes(S::GROUPS, S::MINIMUM);
    assert!(scratch.len() >= blocks * bytes, "room for all blocks");
    let start = scratch.as_mut_ptr();
    for block in 0..blocks {
        // SAFETY: `scratch` has room for this block, as asserted; the panel has it by the caller's shape.
        unsafe {
            let at = start.add(block * bytes);
            let codes = from.codes(l, block);
            for (i, code) in codes.into_iter().enumerate() {
                l.store_codes(at.add(i * VECTOR), code);
            }
            for group in 0..S::GROUPS {
                l.store(at.add((VECTORS + group) * VECTOR).cast(), from.scale(l, block, group));
                if S::MINIMUM {
                    let at = at.add((VECTORS + S::GROUPS + group) * VECTOR);
                    l.store(at.cast(), from.minimum(l, block, group));
                }
            }
        }
    }
}

impl<const GROUPS: usize, const MINIMUM: bool, const WIDE: bool> Unpacked<GROUPS, MINIMUM, WIDE> {
    /// A panel that `unpack_panel` wrote to `scratch` from a source with these constants.
    pub(super) fn new(scratch: &[u8], blocks: usize, zero: u8) -> Self {
        assert!(scratch.len() >= blocks * Self::BYTES, "all blocks are there");
        Self {
            start: scratch.as_ptr(),
            zero,
        }
    }

    const BYTES: usize = unpacked_bytes(GROUPS, MINIMUM);
}

impl<const GROUPS: usize, const MINIMUM: bool, const WIDE: bool> Source for Unpacked<GROUPS, MINIMUM, WIDE> {
    const GROUPS: usize = GROUPS;
    const MINIMUM: bool = MINIMUM;
    const WIDE: bool = WIDE;

    #[inline(always)]
    fn zero(self) -> u8 {
        self.zero
    }

    #[inline(always)]
    unsafe fn codes<L: Lanes>(self, l: L, block: usize) -> [L::C; VECTORS] {
        // SAFETY: `unpack_panel` wrote this block's codes there.
        unsafe { plane8(l, self.start.add(block * Self::BYTES)) }
    }

    #[inline(always)]
    unsafe fn scale<L: Lanes>(self, l: L, block: usize, group: usize) -> L::F {
        // SAFETY: `unpack_panel` wrote this block's scales there.
        unsafe { l.load(self.start.add(block * Self::BYTES + (VECTORS + group) * VECTOR).cast()) }
    }

    #[inline(always)]
    unsafe fn minimum<L: Lanes>(self, l: L, block: usize, group: usize) -> L::F {
        let at = block * Self::BYTES + (VECTORS + GROUPS + group) * VECTOR;
        // SAFETY: `unpack_panel` wrote this block's minima there, if the format has them.
        unsafe { l.load(self.start.add(at).cast()) }
    }
}
