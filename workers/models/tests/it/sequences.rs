//! Drives a model as the engine does, with a block table per sequence.

use std::collections::BTreeMap;

use cluster_engine::{Batch, BlockId, Embedded, KvKind, Model, Outputs, Row, SeqId, Slice, Wanted};

/// Blocks of each sequence: enough for the longest recorded prompt and its continuation.
const BLOCKS_EACH: u32 = 20;

/// A model with room for some sequences.
pub(crate) struct Sequences {
    pub(crate) model: Box<dyn Model>,
    count: u32,
    outputs: Outputs,
    /// Rows that stand in for embeddings, by sequence: runs of them, each with the position of its first.
    pub(crate) media: BTreeMap<u64, Vec<(usize, Vec<f32>)>>,
}

/// Some tokens of a sequence.
pub(crate) struct Part<'a> {
    pub(crate) seq: u64,
    pub(crate) start: usize,
    pub(crate) tokens: &'a [u32],
    pub(crate) wanted: Wanted,
}

impl Sequences {
    pub(crate) fn new(mut model: Box<dyn Model>, count: u32) -> Self {
        let classes = model.info().classes.len();
        model.allocate(&vec![count * BLOCKS_EACH; classes]).unwrap();
        Self {
            model,
            count,
            outputs: Outputs::default(),
            media: BTreeMap::new(),
        }
    }

    /// A sequence's blocks, scattered and in no order, differently in each class.
    pub(crate) fn table(&self, seq: u64, class: usize) -> Vec<BlockId> {
        let total = self.count * BLOCKS_EACH;
        let nth = |index: u32| (index * self.count + seq as u32 + class as u32) % total;
        (0..BLOCKS_EACH).rev().map(nth).map(BlockId).collect()
    }

    /// As `table`, without the blocks that are wholly behind a window.
    fn live(&self, part: &Part<'_>, class: usize) -> Vec<BlockId> {
        let mut table = self.table(part.seq, class);
        let class = &self.model.info().classes[class];
        if let KvKind::Window { tokens } = class.kind {
            let behind = (part.start + 1).saturating_sub(tokens as usize) / class.block_tokens as usize;
            table[..behind].fill(BlockId::NONE);
        }
        table
    }

    /// Runs one batch and gives its rows of logits; `Err` for a row that failed.
    pub(crate) fn step(&mut self, parts: &[Part<'_>]) -> Vec<Result<Vec<f32>, String>> {
        let classes = self.model.info().classes.len();
        let tables: Vec<Vec<Vec<BlockId>>> = parts
            .iter()
            .map(|part| (0..classes).map(|class| self.live(part, class)).collect())
            .collect();
        let width = self.model.info().width as usize;
        let embedded: Vec<Vec<Embedded<'_>>> = parts.iter().map(|part| embedded(&self.media, width, part)).collect();
        let tables: Vec<Vec<&[BlockId]>> = tables
            .iter()
            .map(|tables| tables.iter().map(Vec::as_slice).collect())
            .collect();
        let slices: Vec<Slice<'_>> = parts
            .iter()
            .zip(&tables)
            .zip(&embedded)
            .map(|((part, tables), embedded)| Slice {
                embedded,
                seq: SeqId(part.seq),
                tokens: part.tokens,
                start: part.start as u32,
                tables,
                wanted: part.wanted,
            })
            .collect();
        self.outputs.clear();
        self.model
            .forward(&Batch { slices: &slices }, &mut self.outputs)
            .unwrap();
        (0..self.outputs.len())
            .map(|row| match self.outputs.row(row) {
                Row::Logits(logits) => Ok(logits.to_vec()),
                Row::Failed(message) => Err(message.to_owned()),
                other => panic!("unexpected row {other:?}"),
            })
            .collect()
    }

    /// Runs one slice with these rows of media, and gives its first row.
    pub(crate) fn step_with(&mut self, part: &Part<'_>, embedded: &[Embedded<'_>]) -> Result<Vec<f32>, String> {
        let classes = self.model.info().classes.len();
        let tables: Vec<Vec<BlockId>> = (0..classes).map(|class| self.live(part, class)).collect();
        let tables: Vec<&[BlockId]> = tables.iter().map(Vec::as_slice).collect();
        let slice = Slice {
            embedded,
            seq: SeqId(part.seq),
            tokens: part.tokens,
            start: part.start as u32,
            tables: &tables,
            wanted: part.wanted,
        };
        self.outputs.clear();
        let batch = Batch { slices: &[slice] };
        self.model.forward(&batch, &mut self.outputs).unwrap();
        match self.outputs.row(0) {
            Row::Logits(logits) => Ok(logits.to_vec()),
            Row::Failed(message) => Err(message.to_owned()),
            other => panic!("unexpected row {other:?}"),
        }
    }

    /// All logits of a sequence that is run in pieces of these lengths, taken in turn.
    pub(crate) fn run(&mut self, seq: u64, tokens: &[u32], pieces: &[usize]) -> Vec<Vec<f32>> {
        let mut rows = Vec::new();
        let mut pieces = pieces.iter().cycle();
        while rows.len() < tokens.len() {
            let start = rows.len();
            let end = tokens.len().min(start + pieces.next().unwrap());
            let part = Part {
                seq,
                start,
                tokens: &tokens[start..end],
                wanted: Wanted::All,
            };
            rows.extend(self.step(&[part]).into_iter().map(Result::unwrap));
        }
        rows
    }

    /// The logits after one more token.
    pub(crate) fn append(&mut self, seq: u64, start: usize, token: u32) -> Vec<f32> {
        let part = Part {
            seq,
            start,
            tokens: &[token],
            wanted: Wanted::Last,
        };
        self.step(&[part]).remove(0).unwrap()
    }
}

/// The part of a sequence's rows of media that lies in a slice.
fn embedded<'a>(media: &'a BTreeMap<u64, Vec<(usize, Vec<f32>)>>, width: usize, part: &Part<'_>) -> Vec<Embedded<'a>> {
    let runs = media.get(&part.seq).map_or(&[][..], Vec::as_slice);
    let mut cut = Vec::new();
    for (first, rows) in runs {
        let start = part.start.max(*first);
        let end = (part.start + part.tokens.len()).min(first + rows.len() / width);
        if start < end {
            cut.push(Embedded {
                first: start as u32,
                rows: &rows[(start - first) * width..(end - first) * width],
            });
        }
    }
    cut
}

pub(crate) fn arg_max(row: &[f32]) -> u32 {
    let best = (0..row.len()).rev().max_by(|&a, &b| row[a].total_cmp(&row[b]));
    best.unwrap() as u32
}

/// The bits of rows, so that a comparison is exact and tells -0 from 0.
pub(crate) fn bits(rows: &[Vec<f32>]) -> Vec<Vec<u32>> {
    rows.iter()
        .map(|row| row.iter().map(|value| value.to_bits()).collect())
        .collect()
}

pub(crate) fn largest_difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}
