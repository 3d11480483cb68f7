//! Full attention within segments, without pages: what picture models use.
//!
//! ```text
//!   tokens     | segment 0      | seg 1 | segment 2          |    queries of a segment read all its keys, and no others
//!   units      (segment, head, up to 64 queries): scores = q · kᵀ, softmax, scores · v
//! ```
//! Both products are the matrix kernels' own, with keys and values in the place of weights: they are repacked once per head and
//! segment, which costs less than one query in 64. So the promise of the matrix kernels holds here too: a row's bits depend on
//! its query and its segment alone. Any head size will do.

use std::ops::Range;
use std::sync::Mutex;

use super::Cpu;
use crate::{Arithmetic, DType, Matrix};

/// Queries of a unit: enough to read keys and values from memory seldom, few enough for their scores to stay in the cache.
const QUERIES: usize = 64;

/// Queries, keys and values `[tokens, heads, head_dim]`.
#[derive(Clone, Copy, Debug)]
pub struct DenseAttention<'a> {
    /// What is looked for.
    pub queries: &'a [f32],
    /// What is compared with it.
    pub keys: &'a [f32],
    /// What is found.
    pub values: &'a [f32],
    /// Heads of a token.
    pub heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Multiplies the scores before softmax.
    pub scale: f32,
    /// Lengths of the segments, one after the other.
    pub segments: &'a [usize],
}

/// One head of one segment.
struct Head {
    tokens: Range<usize>,
    head: usize,
    /// Keys `[tokens, head_dim]`, values `[head_dim, tokens]`.
    packed: Mutex<Option<(Matrix, Matrix)>>,
}

/// Some queries of one head, and their results.
struct Unit<'a> {
    head: &'a Head,
    keys: &'a Matrix,
    values: &'a Matrix,
    queries: Range<usize>,
    results: Mutex<Vec<f32>>,
}

impl Cpu {
    /// Attention of every token over all tokens of its segment; `out` has the queries' shape.
    ///
    /// # Panics
    /// When the slices differ in length or the segments do not cover the tokens.
    pub fn dense_attention(&self, call: &DenseAttention<'_>, out: &mut [f32]) {
        let width = call.heads * call.head_dim;
        let len = call.segments.iter().sum::<usize>() * width;
        for numbers in [call.queries, call.keys, call.values, &*out] {
            assert_eq!(numbers.len(), len, "segments of {:?} tokens of {width}", call.segments);
        }
        let heads = call.heads();
        self.pool()
            .for_each(heads.len(), &|index| call.pack(self, &heads[index]));
        let packed: Vec<_> = heads
            .iter()
            .map(|head| head.packed.try_lock().expect("packing has ended"))
            .collect();
        let units = heads.iter().zip(&packed).flat_map(|(head, packed)| {
            let (keys, values) = packed.as_ref().expect("every head has been packed");
            head.tokens.clone().step_by(QUERIES).map(move |first| Unit {
                head,
                keys,
                values,
                queries: first..(first + QUERIES).min(head.tokens.end),
                results: Mutex::default(),
            })
        });
        let units: Vec<_> = units.collect();
        self.pool()
            .for_each(units.len(), &|index| call.run(self, &units[index]));
        for unit in &units {
            let results = unit.results.try_lock().expect("all units have ended");
            for (token, row) in unit.queries.clone().zip(results.chunks_exact(call.head_dim)) {
                out[token * width + unit.head.head * call.head_dim..][..call.head_dim].copy_from_slice(row);
            }
        }
    }
}

impl DenseAttention<'_> {
    fn heads(&self) -> Vec<Head> {
        let mut heads = Vec::new();
        let mut start = 0;
        for len in self.segments {
            heads.extend((0..self.heads).map(|head| Head {
                tokens: start..start + len,
                head,
                packed: Mutex::new(None),
            }));
            start += len;
        }
        heads
    }

    /// The numbers of one head, token after token.
    fn gather(&self, from: &[f32], tokens: Range<usize>, head: usize) -> Vec<f32> {
        let width = self.heads * self.head_dim;
        let rows = tokens.map(|token| &from[token * width + head * self.head_dim..][..self.head_dim]);
        rows.flatten().copied().collect()
    }

    /// Lays keys and values of a head out for the matrix kernels.
    fn pack(&self, cpu: &Cpu, head: &Head) {
        let tokens = head.tokens.len();
        let keys = self.gather(self.keys, head.tokens.clone(), head.head);
        let values = self.gather(self.values, head.tokens.clone(), head.head);
        let columns = (0..self.head_dim).flat_map(|column| values.iter().skip(column).step_by(self.head_dim));
        let columns: Vec<f32> = columns.copied().collect();
        let matrix = |rows, cols, numbers: &[f32]| {
            let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
            cpu.matrix(DType::F32, rows, cols, &bytes, Arithmetic::Exact)
                .expect("the bytes are those of this shape, and memory of this size was had just now")
        };
        let packed = (
            matrix(tokens, self.head_dim, &keys),
            matrix(self.head_dim, tokens, &columns),
        );
        *head.packed.try_lock().expect("every head is packed by one thread") = Some(packed);
    }

    fn run(&self, cpu: &Cpu, unit: &Unit<'_>) {
        let rows = unit.queries.len();
        let keys = unit.head.tokens.len();
        let mut queries = self.gather(self.queries, unit.queries.clone(), unit.head.head);
        queries.iter_mut().for_each(|query| *query *= self.scale);
        let mut scores = vec![0.0; rows * keys];
        cpu.matmul(&queries, rows, &mut [(unit.keys, &mut scores)]);
        cpu.softmax(&mut scores, keys);
        let mut results = vec![0.0; rows * self.head_dim];
        cpu.matmul(&scores, rows, &mut [(unit.values, &mut results)]);
        *unit.results.try_lock().expect("every unit is run by one thread") = results;
    }
}

#[cfg(test)]
mod tests;
