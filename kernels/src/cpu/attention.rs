//! Causal attention over KV pages, for many tokens of many sequences at once.
//!
//! ```text
//!   unit  = (sequence, up to R rows, kv head, span of keys); a row is a (token, query head) that reads this kv head
//!   span  = 256 keys at absolute positions; its result is a running maximum, a sum of weights and a weighted sum
//!   tile  = 32 keys at absolute positions, the step of the running softmax
//! ```
//! Keys and values that rows share are loaded and converted once for R of them. Tiles and spans lie at absolute positions
//! and spans are merged from the first to the last, so a row's result depends on its position and the pages alone. When
//! there are few rows, spans of one row go to different threads.
//!
//! Cost per row and key: 2·head_dim fused multiply-adds and 1/16 of an exponential; bytes: the pages once per R rows.
//! Measured on two cores of an EPYC (Zen 5, f32 peak 530 GFLOP/s), 9 heads over 3 of 64, f16 pages: 240 GFLOP/s for a prompt of
//! 512, 300 for its continuation to 2,048, 110 to 190 for one token.
#![expect(
    unsafe_code,
    reason = "vector loads through pointers, disjoint writes from several threads"
)]

mod span;

use std::ops::Range;
use std::sync::Mutex;

use super::lanes::{BF16, E4M3, F16, F32, LANES};
use super::{Cpu, Isa};
use crate::{KvDType, KvStore};
use span::{Partial, Rows, Span};

/// Keys of a span.
const SPAN: usize = 256;
/// Rows that share loads of keys and values.
const ROWS: usize = 4;
/// Rows of a unit when there are many.
const UNIT_ROWS: usize = 48;

/// One call of attention: which layer, how many query heads, and whose tokens the queries are.
#[derive(Clone, Copy, Debug)]
pub struct Attention<'a> {
    /// The layer whose pages are read.
    pub layer: usize,
    /// Query heads, a multiple of the store's heads.
    pub heads: usize,
    /// Multiplies the scores before softmax.
    pub scale: f32,
    /// When given, a query reads only this many positions, its own the last.
    pub window: Option<usize>,
    /// Whose rows the queries are, in order.
    pub sequences: &'a [Sequence<'a>],
}

/// Consecutive tokens of one sequence, their keys and values written before.
#[derive(Clone, Copy, Debug)]
pub struct Sequence<'a> {
    /// The sequence's blocks from position 0 on. What lies wholly behind the window may be missing: any number stands there.
    pub blocks: &'a [u32],
    /// The position of the first token.
    pub start: usize,
    /// How many tokens.
    pub tokens: usize,
}

impl Attention<'_> {
    /// The first position that a query at `position` reads.
    fn first_key(&self, position: usize) -> usize {
        self.window.map_or(0, |window| (position + 1).saturating_sub(window))
    }
}

/// Rows of one sequence that read one kv head.
#[derive(Clone, Copy, Debug)]
struct Unit<'a> {
    sequence: &'a Sequence<'a>,
    /// The sequence's first token among all queries.
    first_token: usize,
    kv_head: usize,
    /// Row r is token r / group, head r mod group.
    first_row: usize,
    rows: usize,
}

/// What all units of a call share.
#[derive(Clone, Copy)]
struct Call<'a> {
    kv: &'a KvStore,
    call: &'a Attention<'a>,
    queries: &'a [f32],
    isa: Isa,
}

impl Cpu {
    /// Causal attention of `queries[n, heads, head_dim]` over the pages of `kv`; `out` has the queries' shape. A query at
    /// position p reads positions 0 to p (or the window's), which must have been written.
    ///
    /// # Panics
    /// When a slice does not fit its shape or a table is too short.
    pub fn attention(&self, kv: &KvStore, call: &Attention<'_>, queries: &[f32], out: &mut [f32]) {
        check(kv, call, queries, out);
        let shared = Call {
            kv,
            call,
            queries,
            isa: self.isa(),
        };
        let units = shared.units(self.threads());
        let spans: usize = units.iter().map(|unit| shared.spans(unit).len()).sum();
        // With few rows a unit's spans are units of their own.
        if units.len() < 4 * self.threads() && spans > units.len() {
            self.by_spans(&shared, &units, out);
            return;
        }
        let out = Out {
            start: out.as_mut_ptr(),
            len: out.len(),
        };
        self.pool().for_each(units.len(), &|index| {
            let unit = &units[index];
            let mut totals = shared.partials(unit.rows);
            let mut next = shared.partials(unit.rows);
            for (turn, span) in shared.spans(unit).enumerate() {
                let into = if turn == 0 { &mut totals } else { &mut next };
                shared.span(unit, span, into);
                if turn > 0 {
                    totals.merge(self.isa(), &next);
                }
            }
            shared.finish(unit, &totals, out);
        });
    }

    /// Computes every span of every unit on its own, then merges each unit's in order.
    fn by_spans(&self, shared: &Call<'_>, units: &[Unit<'_>], out: &mut [f32]) {
        let jobs: Vec<_> = units
            .iter()
            .flat_map(|unit| shared.spans(unit).map(move |span| (unit, span)))
            .collect();
        let results: Vec<_> = jobs
            .iter()
            .map(|(unit, _)| Mutex::new(shared.partials(unit.rows)))
            .collect();
        self.pool().for_each(jobs.len(), &|index| {
            let (unit, span) = jobs[index];
            let mut into = results[index].try_lock().expect("every span is computed by one thread");
            shared.span(unit, span, &mut into);
        });
        let out = Out {
            start: out.as_mut_ptr(),
            len: out.len(),
        };
        let mut results = results
            .into_iter()
            .map(|result| result.into_inner().expect("no thread panicked"));
        for unit in units {
            let mut totals: Option<Partial> = None;
            for result in results.by_ref().take(shared.spans(unit).len()) {
                match &mut totals {
                    Some(totals) => totals.merge(self.isa(), &result),
                    None => totals = Some(result),
                }
            }
            shared.finish(unit, &totals.expect("a row reads at least its own key"), out);
        }
    }
}

fn check(kv: &KvStore, call: &Attention<'_>, queries: &[f32], out: &[f32]) {
    let shape = kv.shape();
    let tokens: usize = call.sequences.iter().map(|sequence| sequence.tokens).sum();
    assert!(call.layer < shape.layers, "layer {} of {}", call.layer, shape.layers);
    assert!(call.window != Some(0), "a query reads at least its own position");
    assert_eq!(
        call.heads % shape.kv_heads,
        0,
        "{} heads over {} kv heads",
        call.heads,
        shape.kv_heads
    );
    assert_eq!(
        queries.len(),
        tokens * call.heads * shape.head_dim,
        "queries of {tokens} tokens"
    );
    assert_eq!(out.len(), queries.len(), "out has the queries' shape");
    for sequence in call.sequences {
        let needed = (sequence.start + sequence.tokens).div_ceil(shape.block_tokens);
        assert!(
            sequence.blocks.len() >= needed,
            "{} blocks where {needed} are needed",
            sequence.blocks.len()
        );
        let first_key = call.first_key(sequence.start);
        let used = &sequence.blocks[first_key / shape.block_tokens..needed];
        assert!(
            used.iter().all(|block| (*block as usize) < kv.blocks()),
            "a table names a missing block"
        );
    }
}

impl<'a> Call<'a> {
    fn group(&self) -> usize {
        self.call.heads / self.kv.shape().kv_heads
    }

    fn units(&self, threads: usize) -> Vec<Unit<'a>> {
        let kv_heads = self.kv.shape().kv_heads;
        let rows_of = |sequence: &Sequence<'_>| sequence.tokens * self.group();
        let all: usize = self.call.sequences.iter().map(rows_of).sum::<usize>() * kv_heads;
        let each = (all / (8 * threads)).next_multiple_of(ROWS).clamp(ROWS, UNIT_ROWS);
        let mut units = Vec::new();
        let mut first_token = 0;
        for sequence in self.call.sequences {
            let rows = rows_of(sequence);
            for first_row in (0..rows).step_by(each) {
                let rows = each.min(rows - first_row);
                units.extend((0..kv_heads).map(|kv_head| Unit {
                    sequence,
                    first_token,
                    kv_head,
                    first_row,
                    rows,
                }));
            }
            first_token += sequence.tokens;
        }
        units
    }

    fn partials(&self, rows: usize) -> Partial {
        Partial::new(rows, self.kv.shape().value_dim())
    }

    /// The position of a unit's row.
    fn position(&self, unit: &Unit<'_>, row: usize) -> usize {
        unit.sequence.start + (unit.first_row + row) / self.group()
    }

    /// The keys that a query at `position` reads.
    fn keys(&self, position: usize) -> Range<usize> {
        self.call.first_key(position)..position + 1
    }

    /// The spans that some row of a unit reads.
    fn spans(&self, unit: &Unit<'_>) -> Range<usize> {
        let first = self.keys(self.position(unit, 0)).start;
        let last = self.position(unit, unit.rows - 1);
        first / SPAN..last / SPAN + 1
    }

    /// Where a unit's row begins in queries and output.
    fn offset(&self, unit: &Unit<'_>, row: usize) -> usize {
        let (token, head) = (
            (unit.first_row + row) / self.group(),
            (unit.first_row + row) % self.group(),
        );
        let head = unit.kv_head * self.group() + head;
        ((unit.first_token + token) * self.call.heads + head) * self.kv.shape().head_dim
    }

    /// Computes one span of all rows of a unit.
    fn span(&self, unit: &Unit<'_>, index: usize, into: &mut Partial) {
        into.clear();
        for first in (0..unit.rows).step_by(ROWS) {
            let count = ROWS.min(unit.rows - first);
            // Places without a row repeat the last: their results are dropped.
            let row = |place: usize| first + place.min(count - 1);
            let keys: [Range<usize>; ROWS] = std::array::from_fn(|place| {
                let keys = self.keys(self.position(unit, row(place)));
                keys.start.max(index * SPAN)..keys.end.min((index + 1) * SPAN)
            });
            let queries = std::array::from_fn(|place| &self.queries[self.offset(unit, row(place))..]);
            let rows = Rows {
                first,
                count,
                keys,
                queries,
            };
            let span = Span {
                kv: self.kv,
                layer: self.call.layer,
                kv_head: unit.kv_head,
                blocks: unit.sequence.blocks,
                scale: self.call.scale,
                rows,
                into: &mut *into,
            };
            match self.kv.shape().dtype {
                KvDType::F32 => self.isa.run(span.of::<F32>()),
                KvDType::F16 => self.isa.run(span.of::<F16>()),
                KvDType::BF16 => self.isa.run(span.of::<BF16>()),
                KvDType::Fp8 => self.isa.run(span.of::<E4M3>()),
            }
        }
    }

    /// Writes a unit's results.
    fn finish(&self, unit: &Unit<'_>, totals: &Partial, out: Out) {
        let dim = self.kv.shape().head_dim;
        for row in 0..unit.rows {
            let at = self.offset(unit, row);
            assert!(at + dim <= out.len, "the output has this row");
            // SAFETY: in bounds as asserted, and no other unit has this row.
            let out = unsafe { std::slice::from_raw_parts_mut(out.start.add(at), dim) };
            let sum = totals.weight(row);
            for (out, value) in out.iter_mut().zip(totals.values(row)) {
                *out = value / sum;
            }
        }
    }
}

/// The output, of which units write disjoint parts.
#[derive(Clone, Copy)]
struct Out {
    start: *mut f32,
    len: usize,
}

// SAFETY: the memory is borrowed mutably for the whole call, and every row is written by one unit.
unsafe impl Sync for Out {}
// SAFETY: as above.
unsafe impl Send for Out {}

#[cfg(test)]
mod tests;
