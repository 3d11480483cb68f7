//! One span of keys for a few rows: scores, running softmax, weighted sum.
#![expect(clippy::needless_range_loop, reason = "several arrays of registers share an index")]

use std::marker::PhantomData;
use std::ops::Range;

use super::{LANES, ROWS};
use crate::KvStore;
use crate::cpu::Isa;
use crate::cpu::lanes::{Element, Kernel, Lanes};
use crate::cpu::math::exp;

/// Keys of a tile: two vectors.
const TILE: usize = 2 * LANES;
/// Vectors of a value that are summed at once.
const VALUE_VECTORS: usize = 4;

/// Unfinished results of some rows: per row a maximum, sixteen partial sums of weights, and the weighted sum of values.
pub(super) struct Partial {
    width: usize,
    numbers: Vec<f32>,
}

impl Partial {
    /// Has room for whole groups of [`ROWS`].
    pub(super) fn new(rows: usize, value_dim: usize) -> Self {
        let width = 2 * LANES + value_dim;
        Self {
            width,
            numbers: vec![0.0; rows.next_multiple_of(ROWS) * width],
        }
    }

    /// No keys seen yet.
    pub(super) fn clear(&mut self) {
        for row in self.numbers.chunks_exact_mut(self.width) {
            row.fill(0.0);
            row[..LANES].fill(f32::NEG_INFINITY);
        }
    }

    fn row(&mut self, row: usize) -> &mut [f32] {
        &mut self.numbers[row * self.width..(row + 1) * self.width]
    }

    /// The sum of a row's weights.
    pub(super) fn weight(&self, row: usize) -> f32 {
        let sums = &self.numbers[row * self.width + LANES..][..LANES];
        let mut half: [f32; LANES] = std::array::from_fn(|i| sums[i]);
        for width in [8, 4, 2, 1] {
            for i in 0..width {
                half[i] += half[i + width];
            }
        }
        half[0]
    }

    /// The weighted sum of a row.
    pub(super) fn values(&self, row: usize) -> &[f32] {
        &self.numbers[row * self.width + 2 * LANES..(row + 1) * self.width]
    }

    /// Adds what the next span found.
    pub(super) fn merge(&mut self, isa: Isa, next: &Partial) {
        isa.run(Merge { totals: self, next });
    }
}

struct Merge<'a> {
    totals: &'a mut Partial,
    next: &'a Partial,
}

impl Kernel for Merge<'_> {
    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        let width = self.totals.width;
        assert_eq!(width, self.next.width, "partial results of one call");
        for (total, next) in self
            .totals
            .numbers
            .chunks_exact_mut(width)
            .zip(self.next.numbers.chunks_exact(width))
        {
            // A row that reads nothing in this span, or read nothing before, has nothing to be scaled by.
            if next[0] == f32::NEG_INFINITY {
                continue;
            }
            if total[0] == f32::NEG_INFINITY {
                total.copy_from_slice(next);
                continue;
            }
            let vectors = total
                .as_chunks_mut::<LANES>()
                .0
                .iter_mut()
                .zip(next.as_chunks::<LANES>().0);
            let mut scales = None;
            for (total, next) in vectors {
                // SAFETY: both arrays are of sixteen numbers.
                unsafe {
                    let (a, b) = (l.load(total.as_ptr()), l.load(next.as_ptr()));
                    let merged = match scales {
                        None => {
                            let max = l.max(a, b);
                            scales = Some((exp(l, l.sub(a, max)), exp(l, l.sub(b, max))));
                            max
                        }
                        Some((scale_a, scale_b)) => l.fma(a, scale_a, l.mul(b, scale_b)),
                    };
                    l.store(total.as_mut_ptr(), merged);
                }
            }
        }
    }
}

/// Up to [`ROWS`] rows; places past `count` repeat the last.
pub(super) struct Rows<'a> {
    /// The first row's place in the partial results.
    pub(super) first: usize,
    pub(super) count: usize,
    /// The keys each reads in this span; may be none.
    pub(super) keys: [Range<usize>; ROWS],
    /// Each row's query, and what follows it.
    pub(super) queries: [&'a [f32]; ROWS],
}

/// The work: one span for some rows.
pub(super) struct Span<'a> {
    pub(super) kv: &'a KvStore,
    pub(super) layer: usize,
    pub(super) kv_head: usize,
    pub(super) blocks: &'a [u32],
    pub(super) scale: f32,
    pub(super) rows: Rows<'a>,
    pub(super) into: &'a mut Partial,
}

impl<'a> Span<'a> {
    /// With pages of `E`.
    pub(super) fn of<E: Element>(self) -> TypedSpan<'a, E> {
        let dim = self.kv.shape().head_dim;
        assert!(
            self.rows.queries.iter().all(|query| query.len() >= dim),
            "whole queries"
        );
        TypedSpan {
            span: self,
            element: PhantomData,
        }
    }
}

/// As [`Span`].
pub(super) struct TypedSpan<'a, E> {
    span: Span<'a>,
    element: PhantomData<E>,
}

/// Where a tile's two halves are.
#[derive(Clone, Copy)]
struct Tile {
    keys: [*const u8; 2],
    values: [*const u8; 2],
}

impl<E: Element> Kernel for TypedSpan<'_, E> {
    #[inline(always)]
    fn run<L: Lanes>(mut self, l: L) {
        let keys = &self.span.rows.keys;
        let read = keys.iter().filter(|keys| !keys.is_empty());
        let first = read.clone().map(|keys| keys.start).min().unwrap_or(0);
        let end = read.map(|keys| keys.end).max().unwrap_or(0);
        let mut start = first / TILE * TILE;
        while start < end {
            let tile = self.locate(start, first..end);
            let whole = self
                .span
                .rows
                .keys
                .iter()
                .all(|keys| keys.start <= start && keys.end >= start + TILE);
            if whole && L::TILE >= 16 && self.span.rows.count > 2 {
                self.tile::<L, 4>(l, tile, [0, 1, 2, 3], 0..TILE);
            } else {
                for place in 0..self.span.rows.count {
                    let keys = self.span.rows.keys[place].clone();
                    let read = keys.start.max(start)..keys.end.min(start + TILE);
                    if !read.is_empty() {
                        self.tile::<L, 1>(l, tile, [place], read.start - start..read.end - start);
                    }
                }
            }
            start += TILE;
        }
    }
}

impl<E: Element> TypedSpan<'_, E> {
    /// Finds a tile's pages. A half without a key that is read may have none; it is given the other's and never used.
    #[inline(always)]
    fn locate(&self, start: usize, read: Range<usize>) -> Tile {
        let Span {
            kv,
            layer,
            kv_head,
            blocks,
            ..
        } = self.span;
        let half = |position: usize| {
            let (block, slot) = (position / kv.shape().block_tokens, position % kv.shape().block_tokens);
            let (keys, values) = kv.head(layer, blocks[block], kv_head);
            (
                keys[slot * E::BYTES..].as_ptr(),
                values[slot * kv.shape().value_dim() * E::BYTES..].as_ptr(),
            )
        };
        let middle = start + LANES;
        let first = half(if middle <= read.start { middle } else { start });
        let second = if middle < read.end { half(middle) } else { first };
        Tile {
            keys: [first.0, second.0],
            values: [first.1, second.1],
        }
    }

    /// One tile for `R` rows, of whose keys `read` count.
    #[inline(always)]
    fn tile<L: Lanes, const R: usize>(&mut self, l: L, tile: Tile, places: [usize; R], read: Range<usize>) {
        let mut weights = [[0.0f32; TILE]; R];
        let mut corrections = [l.splat(0.0); R];
        let scores = self.scores::<L, R>(l, tile, places);
        for row in 0..R {
            for half in 0..2 {
                let scaled = l.mul(scores[row][half], l.splat(self.span.scale));
                // SAFETY: `weights` has a tile's room in every row.
                unsafe { l.store(weights[row].as_mut_ptr().add(half * LANES), scaled) };
            }
            corrections[row] = self.soften(l, &mut weights[row], places[row], &read);
        }
        self.add_values(l, tile, places, &weights, corrections, read);
    }

    /// Query times keys: even channels and odd channels are summed apart, from the first to the last.
    #[inline(always)]
    fn scores<L: Lanes, const R: usize>(&self, l: L, tile: Tile, places: [usize; R]) -> [[L::F; 2]; R] {
        let shape = self.span.kv.shape();
        let step = shape.block_tokens * E::BYTES;
        let queries = places.map(|place| self.span.rows.queries[place].as_ptr());
        let mut sums = [[[l.splat(0.0); 2]; 2]; R];
        for pair in 0..shape.head_dim / 2 {
            // SAFETY: the queries and the pages have both channels.
            unsafe {
                self.add_channel::<L, R>(l, tile, queries, 2 * pair, step, &mut sums, 0);
                self.add_channel::<L, R>(l, tile, queries, 2 * pair + 1, step, &mut sums, 1);
            }
        }
        if shape.head_dim % 2 == 1 {
            // SAFETY: the queries and the pages have the last channel.
            unsafe { self.add_channel::<L, R>(l, tile, queries, shape.head_dim - 1, step, &mut sums, 0) };
        }
        let mut scores = [[l.splat(0.0); 2]; R];
        for row in 0..R {
            for half in 0..2 {
                scores[row][half] = l.add(sums[row][0][half], sums[row][1][half]);
            }
        }
        scores
    }

    /// # Safety
    /// The queries and the pages have this channel.
    #[inline(always)]
    #[expect(clippy::too_many_arguments, reason = "one step of the loop above, in registers")]
    unsafe fn add_channel<L: Lanes, const R: usize>(
        &self,
        l: L,
        tile: Tile,
        queries: [*const f32; R],
        channel: usize,
        step: usize,
        sums: &mut [[[L::F; 2]; 2]; R],
        parity: usize,
    ) {
        for half in 0..2 {
            // SAFETY: sixteen keys of this channel lie there.
            let keys = unsafe { E::load(l, tile.keys[half].add(channel * step)) };
            for row in 0..R {
                // SAFETY: the query has this channel.
                let query = l.splat(unsafe { *queries[row].add(channel) });
                sums[row][parity][half] = l.fma(keys, query, sums[row][parity][half]);
            }
        }
    }

    /// Turns a row's scores into weights relative to its new maximum, adds them to its sum, and returns what earlier sums
    /// have to be multiplied by.
    #[inline(always)]
    fn soften<L: Lanes>(&mut self, l: L, scores: &mut [f32; TILE], place: usize, read: &Range<usize>) -> L::F {
        if *read != (0..TILE) {
            scores[..read.start].fill(f32::NEG_INFINITY);
            scores[read.end..].fill(f32::NEG_INFINITY);
        }
        let row = self.span.into.row(self.span.rows.first + place).as_mut_ptr();
        // SAFETY: scores are two vectors; a row of partial results starts with two.
        unsafe {
            let halves = [l.load(scores.as_ptr()), l.load(scores.as_ptr().add(LANES))];
            let before = l.load(row);
            let max = l.max(before, l.splat(l.largest(l.max(halves[0], halves[1]))));
            let correction = exp(l, l.sub(before, max));
            let weights = [exp(l, l.sub(halves[0], max)), exp(l, l.sub(halves[1], max))];
            l.store(scores.as_mut_ptr(), weights[0]);
            l.store(scores.as_mut_ptr().add(LANES), weights[1]);
            l.store(row, max);
            let sums = row.add(LANES);
            l.store(sums, l.fma(l.load(sums), correction, l.add(weights[0], weights[1])));
            correction
        }
    }

    /// Weights times values, added to the rows' sums key by key.
    #[inline(always)]
    fn add_values<L: Lanes, const R: usize>(
        &mut self,
        l: L,
        tile: Tile,
        places: [usize; R],
        weights: &[[f32; TILE]; R],
        corrections: [L::F; R],
        read: Range<usize>,
    ) {
        let vectors = self.span.kv.shape().value_dim() / LANES;
        let mut first = 0;
        while first + VALUE_VECTORS <= vectors {
            self.add_some_values::<L, R, VALUE_VECTORS>(l, tile, places, weights, corrections, read.clone(), first);
            first += VALUE_VECTORS;
        }
        for first in first..vectors {
            self.add_some_values::<L, R, 1>(l, tile, places, weights, corrections, read.clone(), first);
        }
    }

    #[inline(always)]
    #[expect(clippy::too_many_arguments, reason = "one step of the loop above, in registers")]
    fn add_some_values<L: Lanes, const R: usize, const V: usize>(
        &mut self,
        l: L,
        tile: Tile,
        places: [usize; R],
        weights: &[[f32; TILE]; R],
        corrections: [L::F; R],
        read: Range<usize>,
        first: usize,
    ) {
        let rows = places.map(|place| {
            let row = self.span.into.row(self.span.rows.first + place);
            row[(2 + first) * LANES..(2 + first + V) * LANES].as_mut_ptr()
        });
        let mut sums = [[l.splat(0.0); V]; R];
        for row in 0..R {
            for vector in 0..V {
                // SAFETY: the slice above has `V` vectors.
                let before = unsafe { l.load(rows[row].add(vector * LANES)) };
                sums[row][vector] = l.mul(before, corrections[row]);
            }
        }
        let step = self.span.kv.shape().value_dim() * E::BYTES;
        for key in read {
            // SAFETY: the page has this key's value, and the value these vectors.
            let value = unsafe { tile.values[key / LANES].add(key % LANES * step + first * LANES * E::BYTES) };
            for vector in 0..V {
                // SAFETY: as above.
                let value = unsafe { E::load(l, value.add(vector * LANES * E::BYTES)) };
                for row in 0..R {
                    sums[row][vector] = l.fma(value, l.splat(weights[row][key]), sums[row][vector]);
                }
            }
        }
        for row in 0..R {
            for vector in 0..V {
                // SAFETY: the slice above has `V` vectors.
                unsafe { l.store(rows[row].add(vector * LANES), sums[row][vector]) };
            }
        }
    }
}
