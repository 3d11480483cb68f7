//! Items over f32 activations: float weights as they are, quantized ones dequantized panel by panel.
#![expect(unsafe_code, reason = "tiles read through pointers")]

use std::marker::PhantomData;

use super::integer::packed;
use super::scratch::Scratch;
use super::source::Packed;
use super::{Item, tile};
use crate::DType;
use crate::cpu::Isa;
use crate::cpu::lanes::{BF16, E4M3, Element, F16, F32, Kernel, LANES, Lanes};
use crate::matrix::layout::{BLOCK, Format};

/// Computes an item over float weights.
pub(super) fn run(isa: Isa, item: &Item<'_>) {
    let start = |panel: usize| item.product.matrix.panel(panel).as_ptr();
    // A sum is a chain of dependent operations: with few tokens it takes several panels to keep the processor busy.
    let each = if item.tokens.len() <= 2 { 4 } else { 2 };
    for panel in item.panels.clone().step_by(each) {
        let panels: Vec<_> = (panel..item.panels.end).take(each).map(start).collect();
        match item.product.matrix.dtype() {
            DType::F32 => isa.run(Panels::<F32>::new(item, panel, &panels)),
            DType::F16 => isa.run(Panels::<F16>::new(item, panel, &panels)),
            DType::BF16 => isa.run(Panels::<BF16>::new(item, panel, &panels)),
            DType::F8E4M3 => isa.run(Panels::<E4M3>::new(item, panel, &panels)),
            dtype => unreachable!("{dtype:?} is no float format"),
        }
    }
}

/// Computes an item over quantized weights.
pub(super) fn run_exact<F: Format>(isa: Isa, item: &Item<'_>) {
    let bytes = item.product.matrix.parts().blocks * BLOCK * LANES * size_of::<f32>();
    let mut scratch = Scratch::take_bytes(bytes);
    for panel in item.panels.clone() {
        let out = &mut scratch.bytes()[..bytes];
        isa.run(Dequantize {
            from: packed::<F>(item, panel),
            blocks: item.product.matrix.parts().blocks,
            out,
        });
        isa.run(Panels::<F32>::new(item, panel, &[scratch.bytes().as_ptr()]));
    }
}

struct Dequantize<'a, F> {
    from: Packed<'a, F>,
    blocks: usize,
    out: &'a mut [u8],
}

impl<F: Format> Kernel for Dequantize<'_, F> {
    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        assert!(self.out.len() >= self.blocks * BLOCK * LANES * size_of::<f32>());
        // SAFETY: the panel has its blocks and `out` room for their columns.
        unsafe { tile::dequantize(l, self.from, self.blocks, self.out.as_mut_ptr().cast()) };
    }
}

/// Up to four neighbouring panels and the tokens they meet.
struct Panels<'a, E> {
    item: &'a Item<'a>,
    panel: usize,
    starts: &'a [*const u8],
    element: PhantomData<E>,
}

impl<'a, E> Panels<'a, E> {
    /// `starts` point to whole panels of `E`, from `panel` on.
    fn new(item: &'a Item<'a>, panel: usize, starts: &'a [*const u8]) -> Self {
        Self {
            item,
            panel,
            starts,
            element: PhantomData,
        }
    }
}

impl<E: Element> Kernel for Panels<'_, E> {
    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        let Self { item, panel, .. } = self;
        match *self.starts {
            [a, b, c, d] if L::TILE >= 4 => all_tokens::<L, E, 4>(l, item, panel, [a, b, c, d]),
            [a, b] if L::TILE >= 8 => all_tokens::<L, E, 2>(l, item, panel, [a, b]),
            _ => {
                for (panel, start) in (panel..).zip(self.starts) {
                    all_tokens::<L, E, 1>(l, item, panel, [*start]);
                }
            }
        }
    }
}

#[inline(always)]
fn all_tokens<L: Lanes, E: Element, const P: usize>(l: L, item: &Item<'_>, panel: usize, panels: [*const u8; P]) {
    let mut token = item.tokens.start;
    while token < item.tokens.end {
        let left = item.tokens.end - token;
        token += if P <= 2 && P * 8 <= L::TILE && left >= 8 {
            one_tile::<L, E, P, 8>(l, item, panel, panels, token)
        } else if P <= 2 && P * 4 <= L::TILE && left >= 4 {
            one_tile::<L, E, P, 4>(l, item, panel, panels, token)
        } else {
            one_tile::<L, E, P, 1>(l, item, panel, panels, token)
        };
    }
}

#[inline(always)]
fn one_tile<L: Lanes, E: Element, const P: usize, const T: usize>(
    l: L,
    item: &Item<'_>,
    panel: usize,
    panels: [*const u8; P],
    token: usize,
) -> usize {
    let tokens = std::array::from_fn(|i| item.row(token + i));
    let matrix = item.product.matrix;
    // SAFETY: panels and rows have the matrix's columns, and panels of a scaled format their scales.
    let sums = unsafe {
        if E::SCALED {
            tile::scaled_float::<L, E, P, T>(l, panels, tokens, matrix.cols(), matrix.parts())
        } else {
            tile::float::<L, E, P, T>(l, panels, tokens, matrix.cols())
        }
    };
    item.write(l, panel, token, sums);
    T
}
