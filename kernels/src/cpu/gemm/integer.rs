//! Items over quantized weights and 8-bit activations.
#![expect(unsafe_code, reason = "tiles read through pointers")]

use std::marker::PhantomData;

use super::scratch::Scratch;
use super::source::{Packed, Source, Unpacked, unpack_panel, unpacked_bytes};
use super::{Item, tile};
use crate::cpu::Isa;
use crate::cpu::lanes::{Kernel, Lanes};
use crate::matrix::layout::Format;

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
    let blocks = item.product.matrix.parts().blocks;
    let bytes = blocks * unpacked_bytes(F::GROUPS, F::MINIMUM);
    let mut scratch = Scratch::take_bytes(2 * bytes);
    let (first, second) = scratch.bytes().split_at_mut(bytes);
    for panel in item.panels.clone().step_by(2) {
        let two = panel + 1 < item.panels.end;
        isa.run(Unpack {
            from: packed::<F>(item, panel),
            blocks,
            scratch: first,
        });
        if two {
            isa.run(Unpack {
                from: packed::<F>(item, panel + 1),
                blocks,
                scratch: second,
            });
        }
        let panels = if two { &[&*first, &*second][..] } else { &[&*first] };
        let pair = Pair {
            item,
            panel,
            panels,
            zero: F::ZERO,
        };
        match (F::GROUPS, F::MINIMUM, F::BITS) {
            (1, true, _) => isa.run(UnpackedItem::<1, true, false>(pair)),
            (1, false, 8) => isa.run(UnpackedItem::<1, false, true>(pair)),
            (1, false, _) => isa.run(UnpackedItem::<1, false, false>(pair)),
            (_, true, _) => isa.run(UnpackedItem::<2, true, false>(pair)),
            (_, false, _) => isa.run(UnpackedItem::<2, false, false>(pair)),
        }
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

/// One or two unpacked panels and the tokens they meet.
#[derive(Clone, Copy)]
struct Pair<'a> {
    item: &'a Item<'a>,
    panel: usize,
    panels: &'a [&'a [u8]],
    zero: u8,
}

struct UnpackedItem<'a, const GROUPS: usize, const MINIMUM: bool, const WIDE: bool>(Pair<'a>);

impl<const GROUPS: usize, const MINIMUM: bool, const WIDE: bool> Kernel for UnpackedItem<'_, GROUPS, MINIMUM, WIDE> {
    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        let Pair {
            item,
            panel,
            panels,
            zero,
        } = self.0;
        let blocks = item.product.matrix.parts().blocks;
        let unpacked = |panel: &[u8]| Unpacked::<GROUPS, MINIMUM, WIDE>::new(panel, blocks, zero);
        if let [first, second] = panels
            && L::TILE >= 8
        {
            return unpacked_tiles(l, item, panel, [unpacked(first), unpacked(second)]);
        }
        for (index, scratch) in (panel..).zip(panels) {
            unpacked_tiles(l, item, index, [unpacked(scratch)]);
        }
    }
}

/// All tokens of an item times some panels.
#[inline(always)]
fn unpacked_tiles<L: Lanes, S: Source, const P: usize>(l: L, item: &Item<'_>, panel: usize, panels: [S; P]) {
    let mut token = item.tokens.start;
    while token < item.tokens.end {
        let left = item.tokens.end - token;
        token += if P * 4 <= L::TILE && left >= 4 {
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
