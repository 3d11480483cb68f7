//! A batch laid out flat: the tokens of all slices one after the other, each with its position and its sequence's blocks.
//!
//! ```text
//!  rows      a a a a a b c c c        one per token
//!  wanted            a b   c c        a range at the end of each slice: only these go through the head
//! ```

use std::ops::Range;

use cluster_engine::{Batch, Slice};
use cluster_kernels::Sequence;

/// The flat form of a batch. Reused between steps.
#[derive(Debug, Default)]
pub(crate) struct Ragged {
    pub(crate) tokens: Vec<u32>,
    pub(crate) positions: Vec<u32>,
    spans: Vec<Span>,
    /// Rows that stand in for embeddings, all slices' one after the other.
    embedded: Vec<f32>,
    /// For each run of them the first row of the batch it replaces, and its numbers.
    embedded_runs: Vec<(usize, Range<usize>)>,
    /// The block tables of all slices; `Span::tables` says which part is whose.
    blocks: Vec<u32>,
    table_ranges: Vec<Range<usize>>,
}

/// One slice's part.
#[derive(Debug)]
struct Span {
    rows: Range<usize>,
    wanted: usize,
    start: usize,
    /// Its ranges in `table_ranges`, one per class.
    tables: Range<usize>,
}

/// Which rows of each slice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rows {
    All,
    Wanted,
}

impl Ragged {
    /// Takes the slices of `batch` for which `keep` says so.
    pub(crate) fn fill(&mut self, batch: &Batch<'_>, mut keep: impl FnMut(&Slice<'_>) -> bool) {
        self.tokens.clear();
        self.positions.clear();
        self.spans.clear();
        self.blocks.clear();
        self.embedded.clear();
        self.embedded_runs.clear();
        self.table_ranges.clear();
        for slice in batch.slices {
            if keep(slice) {
                self.push(slice);
            }
        }
    }

    fn push(&mut self, slice: &Slice<'_>) {
        let first_row = self.tokens.len();
        self.tokens.extend_from_slice(slice.tokens);
        self.positions.extend((slice.start..).take(slice.tokens.len()));
        for run in slice.embedded {
            let first_number = self.embedded.len();
            self.embedded.extend_from_slice(run.rows);
            let row = first_row + (run.first - slice.start) as usize;
            self.embedded_runs.push((row, first_number..self.embedded.len()));
        }
        let first_table = self.table_ranges.len();
        for table in slice.tables {
            let first_block = self.blocks.len();
            self.blocks.extend(table.iter().map(|block| block.0));
            self.table_ranges.push(first_block..self.blocks.len());
        }
        self.spans.push(Span {
            rows: first_row..self.tokens.len(),
            wanted: slice.wanted.rows(slice.tokens.len()),
            start: slice.start as usize,
            tables: first_table..self.table_ranges.len(),
        });
    }

    /// How many rows there are.
    pub(crate) fn len(&self, rows: Rows) -> usize {
        match rows {
            Rows::All => self.tokens.len(),
            Rows::Wanted => self.spans.iter().map(|span| span.wanted).sum(),
        }
    }

    /// The ranges of the wanted rows among all rows.
    pub(crate) fn wanted(&self) -> impl Iterator<Item = Range<usize>> {
        self.spans.iter().map(|span| span.rows.end - span.wanted..span.rows.end)
    }

    /// Leaves only the wanted of `rows`, which are all.
    pub(crate) fn keep_wanted(&self, width: usize, rows: &mut Vec<f32>) {
        let mut kept = 0;
        for wanted in self.wanted() {
            let values = wanted.start * width..wanted.end * width;
            let len = values.len();
            rows.copy_within(values, kept);
            kept += len;
        }
        rows.truncate(kept);
    }

    /// Overwrites embeddings with the rows that stand in for them.
    pub(crate) fn put_embedded(&self, width: usize, rows: &mut [f32]) {
        for (row, numbers) in &self.embedded_runs {
            let first = row * width;
            rows[first..first + numbers.len()].copy_from_slice(&self.embedded[numbers.clone()]);
        }
    }

    /// The positions of the wanted rows.
    pub(crate) fn wanted_positions(&self) -> Vec<u32> {
        let positions = self.wanted().flat_map(|rows| &self.positions[rows]);
        positions.copied().collect()
    }

    /// Each slice's blocks of `class`, its first position, and its rows.
    pub(crate) fn tables(&self, class: usize) -> impl Iterator<Item = (&[u32], usize, Range<usize>)> {
        self.spans
            .iter()
            .map(move |span| (self.table(span, class), span.start, span.rows.clone()))
    }

    /// The slices as attention takes them, without those that have no rows.
    pub(crate) fn sequences(&self, class: usize, rows: Rows) -> Vec<Sequence<'_>> {
        let sequence = |span: &Span| {
            let all = span.rows.len();
            let tokens = if rows == Rows::All { all } else { span.wanted };
            Sequence {
                blocks: self.table(span, class),
                start: span.start + all - tokens,
                tokens,
            }
        };
        let sequences = self.spans.iter().map(sequence);
        sequences.filter(|sequence| sequence.tokens > 0).collect()
    }

    fn table(&self, span: &Span, class: usize) -> &[u32] {
        &self.blocks[self.table_ranges[span.tables.clone()][class].clone()]
    }
}

#[cfg(test)]
mod tests;
