//! Items over quantized weights and 8-bit activations.
#![expect(unsafe_code, reason = "tiles read through pointers")]

use std::marker::PhantomData;
use std::ops::Range;

use super::scratch::Scratch;
use super::source::{Packed, Source, Unpacked, unpack_panel, unpacked_bytes};
use super::{Item, tile};
use crate::cpu::Isa;
use crate::cpu::lanes::{Kernel, Lanes};
use crate::matrix::layout::Format;

/// Tokens that go through an item's panels together: enough tiles for a pair of panels to be worth fetching, and few enough
/// for the output's lines to be finished before the cache drops them.
const TOGETHER: usize = 32;

/// Panels that are unpacked at once: they should stay in the L2 cache.
const UNPACKED: usize = 4;

/// Up to so many tokens, panels are unpacked in registers for each tile.
fn few(isa: Isa) -> usize {
    match isa {
        Isa::Scalar => 0,
        Isa::Avx2 => 2,
        Isa::Avx512 => 16,
    }
}

/// Computes an item.
pub(super) fn run<F: Format>(isa: Isa, item: &Item<'_>) {
    if item.tokens.len() <= few(isa) {
        isa.run(PackedItem::<F>(item, PhantomData));
        return;
    }
    for first in item.panels.clone().step_by(UNPACKED) {
        let panels = first..(first + UNPACKED).min(item.panels.end);
        run_unpacked::<F>(isa, &Item { panels, ..item.clone() });
    }
}

/// Unpacks all panels of an item, then multiplies them.
fn run_unpacked<F: Format>(isa: Isa, item: &Item<'_>) {
    let blocks = item.product.matrix.parts().blocks;
    let bytes = blocks * unpacked_bytes(F::GROUPS, F::MINIMUM);
    let mut scratch = Scratch::take_bytes(bytes * item.panels.len());
    for (panel, scratch) in item.panels.clone().zip(scratch.bytes().chunks_exact_mut(bytes.max(1))) {
        let from = packed::<F>(item, panel);
        isa.run(Unpack { from, blocks, scratch });
    }
    let panels = Panels {
        item,
        scratch: scratch.bytes(),
        bytes,
        zero: F::ZERO,
    };
    match (F::GROUPS, F::MINIMUM, F::BITS) {
        (1, true, _) => isa.run(UnpackedItem::<1, true, false>(panels)),
        (1, false, 8) => isa.run(UnpackedItem::<1, false, true>(panels)),
        (1, false, _) => isa.run(UnpackedItem::<1, false, false>(panels)),
        (_, true, _) => isa.run(UnpackedItem::<2, true, false>(panels)),
        (_, false, _) => isa.run(UnpackedItem::<2, false, false>(panels)),
    }
}

pub(super) fn packed<'a, F: Format>(item: &Item<'a>, panel: usize) -> Packed<'a, F> {
    let matrix = item.product.matrix;
    Packed::new(matrix.panel(panel), matrix.parts())
}

struct PackedItem<'a, F>(&'a Item<'a>, PhantomData<F>);

impl<F: Format> Kernel for PackedItem<'_, F> {
    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        let item = self.0;
        let mut token = item.tokens.start;
        // Tokens outside, panels inside: the rows of a wide output may all lie in one set of the cache, which has room for
        // the lines of one tile's tokens until the next panels have filled them, not for those of all tokens.
        while token < item.tokens.end {
            let left = item.tokens.end - token;
            token += if L::TILE >= 8 && left >= 8 {
                packed_tiles::<L, F, 8>(l, item, token)
            } else if L::TILE >= 8 && left >= 4 {
                packed_tiles::<L, F, 4>(l, item, token)
            } else if L::TILE >= 2 && left >= 2 {
                packed_tiles::<L, F, 2>(l, item, token)
            } else {
                packed_tiles::<L, F, 1>(l, item, token)
            };
        }
    }
}

/// Some tokens times all panels of an item.
#[inline(always)]
fn packed_tiles<L: Lanes, F: Format, const T: usize>(l: L, item: &Item<'_>, token: usize) -> usize {
    for panel in item.panels.clone() {
        one_tile::<L, _, 1, T>(l, item, panel, [packed::<F>(item, panel)], token);
    }
    T
}

struct Unpack<'a, F> {
    from: Packed<'a, F>,
    blocks: usize,
    scratch: &'a mut [u8],
}

impl<F: Format> Kernel for Unpack<'_, F> {
    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        unpack_panel(l, self.from, self.blocks, self.scratch);
    }
}

/// An item and all its panels, unpacked.
#[derive(Clone, Copy)]
struct Panels<'a> {
    item: &'a Item<'a>,
    scratch: &'a [u8],
    /// Of a panel in `scratch`.
    bytes: usize,
    zero: u8,
}

impl Panels<'_> {
    /// Panel `index` of the matrix.
    #[inline(always)]
    fn get<const GROUPS: usize, const MINIMUM: bool, const WIDE: bool>(
        &self,
        index: usize,
    ) -> Unpacked<GROUPS, MINIMUM, WIDE> {
        let place = index - self.item.panels.start;
        let scratch = &self.scratch[place * self.bytes..(place + 1) * self.bytes];
        Unpacked::new(scratch, self.item.product.matrix.parts().blocks, self.zero)
    }
}

struct UnpackedItem<'a, const GROUPS: usize, const MINIMUM: bool, const WIDE: bool>(Panels<'a>);

impl<const GROUPS: usize, const MINIMUM: bool, const WIDE: bool> Kernel for UnpackedItem<'_, GROUPS, MINIMUM, WIDE> {
    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        let item = self.0.item;
        let mut first = item.tokens.start;
        while first < item.tokens.end {
            let tokens = first..(first + TOGETHER).min(item.tokens.end);
            first = tokens.end;
            let mut panel = item.panels.start;
            while L::TILE >= 8 && panel + 2 <= item.panels.end {
                let pair = [self.0.get::<GROUPS, MINIMUM, WIDE>(panel), self.0.get(panel + 1)];
                unpacked_tiles(l, item, panel, pair, tokens.clone());
                panel += 2;
            }
            for panel in panel..item.panels.end {
                let one = [self.0.get::<GROUPS, MINIMUM, WIDE>(panel)];
                unpacked_tiles(l, item, panel, one, tokens.clone());
            }
        }
    }
}

/// Some tokens of an item times some panels.
#[inline(always)]
fn unpacked_tiles<L: Lanes, S: Source, const P: usize>(
    l: L,
    item: &Item<'_>,
    panel: usize,
    panels: [S; P],
    tokens: Range<usize>,
) {
    let mut token = tokens.start;
    while token < tokens.end {
        token += if P * 4 <= L::TILE && tokens.end - token >= 4 {
            one_tile::<L, S, P, 4>(l, item, panel, panels, token)
        } else {
            one_tile::<L, S, P, 1>(l, item, panel, panels, token)
        };
    }
}

#[inline(always)]
fn one_tile<L: Lanes, S: Source, const P: usize, const T: usize>(
    l: L,
    item: &Item<'_>,
    panel: usize,
    panels: [S; P],
    token: usize,
) -> usize {
    let tokens = std::array::from_fn(|i| item.lines(token + i));
    // SAFETY: panels and lines have the matrix's blocks.
    let sums = unsafe { tile::integer::<L, S, P, T>(l, panels, tokens, item.product.matrix.parts().blocks) };
    item.write(l, panel, token, sums);
    T
}
