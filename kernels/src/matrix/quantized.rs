//! Weights whose codes and scales lie apart, as checkpoints of NVFP4, MXFP4, FP8 and INT4 have them.
//!
//! ```text
//!   codes   [rows, cols]   ─┐
//!   scales  [rows, groups] ─┼─ a row of the cut ─▶ blocks, scales first ─▶ panel
//!   zeros   [groups, rows] ─┘
//! ```
//! A part of a weight, as one of several ranks holds it, is cut out on the way: any rows, and columns in whole groups.
//!
//! Measured with `examples/bench.rs` on two cores of a shared EPYC (Zen 5), one token times 16384 x 2048, 8-bit activations:
//! NVFP4 463, MXFP4 571, INT4 557 GOP/s (145 to 165 GB/s of weights), beside 612 of q4_0; FP8, whose codes become floats one
//! by one, 56 GFLOP/s (28 GB/s) beside 78 of bf16.

use std::ops::Range;

use super::layout::{BLOCK, PANEL, Parts};
use super::{Matrix, pack, pack_panel};
use crate::cpu::pool::Pool;
use crate::{Arithmetic, DType, KernelError, reference};

/// The part of a weight to keep.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Cut {
    /// These outputs.
    pub rows: Range<usize>,
    /// Of these inputs.
    pub cols: Range<usize>,
}

impl Cut {
    /// Everything.
    pub fn whole(rows: usize, cols: usize) -> Self {
        Self {
            rows: 0..rows,
            cols: 0..cols,
        }
    }
}

/// A weight `[rows, cols]` in parts. All numbers are little-endian.
#[derive(Clone, Copy, Debug)]
pub enum QuantizedWeight<'a> {
    /// weight = code · (scale · global), rounded in this order where single weights are asked for.
    Nvfp4 {
        /// E2M1 `[rows, cols / 2]`, the even column in the low half.
        codes: &'a [u8],
        /// E4M3 `[rows, cols / 16]`.
        scales: &'a [u8],
        /// For the whole weight.
        global: f32,
    },
    /// weight = code · scale.
    Mxfp4 {
        /// E2M1 `[rows, cols / 2]`, the even column in the low half.
        codes: &'a [u8],
        /// E8M0 `[rows, cols / 32]`.
        scales: &'a [u8],
    },
    /// weight = code · scale.
    Fp8 {
        /// E4M3 `[rows, cols]`.
        codes: &'a [u8],
        /// For blocks of it.
        scales: Fp8Scales<'a>,
    },
    /// weight = (code - zero) · scale, stored with inputs as rows (GPTQ).
    Int4 {
        /// i32 `[cols / 8, rows]`: eight codes of neighbouring columns, the first in the lowest bits.
        codes: &'a [u8],
        /// f16 `[groups, rows]`.
        scales: &'a [u8],
        /// i32 `[groups, rows / 8]`: eight codes of neighbouring rows, each one less than the zero point.
        zeros: &'a [u8],
        /// Columns of a group.
        group_len: usize,
        /// i32 `[cols]`: the group of each column, where groups are not runs of columns.
        group_of: Option<&'a [u8]>,
    },
}

/// Scales of blocks of an FP8 weight, `[rows / block rows, cols / block columns]`, both rounded up.
#[derive(Clone, Copy, Debug)]
pub struct Fp8Scales<'a> {
    /// The numbers.
    pub bytes: &'a [u8],
    /// What kind they are.
    pub dtype: ScaleType,
    /// Rows and columns of a block: the weight's own for one scale in all, 1 and its columns for one a row.
    pub block: [usize; 2],
}

/// How scales are stored.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[expect(missing_docs, reason = "the names are the formats' own")]
pub enum ScaleType {
    F32,
    BF16,
    E8M0,
}

impl ScaleType {
    /// Bytes of one.
    pub const fn bytes(self) -> usize {
        match self {
            ScaleType::F32 => 4,
            ScaleType::BF16 => 2,
            ScaleType::E8M0 => 1,
        }
    }
}

impl Matrix {
    /// As [`crate::Cpu::matrix_of`].
    pub(crate) fn of(
        pool: &Pool,
        weight: &QuantizedWeight<'_>,
        shape: [usize; 2],
        cut: &Cut,
        arithmetic: Arithmetic,
    ) -> Result<Self, KernelError> {
        weight.check(shape, cut)?;
        let reader = Reader { weight, shape, cut };
        let (dtype, cols) = (reader.dtype(), cut.cols.len());
        let parts = Parts::with_scales(dtype, cols, reader.scale_cols());
        let mut matrix = Self::empty(dtype, [cut.rows.len(), cols], parts, arithmetic)?;
        if let QuantizedWeight::Nvfp4 { global, .. } = weight {
            matrix.scale = *global;
        }
        let padded = cols.next_multiple_of(dtype.block_len());
        matrix.fill(pool, |parts, index, panel| {
            let first = cut.rows.start + index * PANEL;
            let rows = first..(first + PANEL).min(cut.rows.end);
            let mut file = Vec::with_capacity(PANEL * dtype.row_bytes(padded));
            rows.clone().for_each(|row| reader.read_row(dtype, row, &mut file));
            pack_panel(dtype, padded, parts, &file, panel);
            if let QuantizedWeight::Fp8 { scales, .. } = weight {
                for (run, col) in cut.cols.clone().step_by(parts.scale_cols).enumerate() {
                    let mut sixteen = [0.0; PANEL];
                    let scale = |row: usize| scales.at(row, col, shape[1]);
                    rows.clone().zip(&mut sixteen).for_each(|(row, to)| *to = scale(row));
                    pack::put_scales(parts, run, sixteen, panel);
                }
            }
        });
        Ok(matrix)
    }
}

impl QuantizedWeight<'_> {
    /// The name of the format.
    pub fn format(&self) -> &'static str {
        match self {
            QuantizedWeight::Nvfp4 { .. } => "NVFP4",
            QuantizedWeight::Mxfp4 { .. } => "MXFP4",
            QuantizedWeight::Fp8 { .. } => "FP8",
            QuantizedWeight::Int4 { .. } => "INT4",
        }
    }

    fn check(&self, [rows, cols]: [usize; 2], cut: &Cut) -> Result<(), KernelError> {
        let format = self.format();
        let (row_end, col_end) = (cut.rows.end, cut.cols.end);
        if row_end > rows || col_end > cols || cut.rows.start > row_end || cut.cols.start > col_end {
            return Err(KernelError::Outside {
                rows,
                cols,
                row_end,
                col_end,
            });
        }
        let group = self.column_group();
        for span in [0..cols, cut.cols.clone()] {
            let (start, end) = (span.start, span.end);
            if !start.is_multiple_of(group) || !end.is_multiple_of(group) {
                return Err(KernelError::Group {
                    format,
                    start,
                    end,
                    group,
                });
            }
        }
        self.check_sizes(rows, cols)?;
        let QuantizedWeight::Int4 {
            group_len,
            group_of: Some(group_of),
            ..
        } = self
        else {
            return Ok(());
        };
        let groups = cols.div_ceil((*group_len).max(1));
        match (0..cols)
            .map(|col| group_index(group_of, col))
            .find(|index| *index >= groups)
        {
            Some(index) => Err(KernelError::GroupIndex { index, groups }),
            None => Ok(()),
        }
    }

    fn check_sizes(&self, rows: usize, cols: usize) -> Result<(), KernelError> {
        let format = self.format();
        for (part, got, expected) in self.sizes(rows, cols) {
            if got != expected {
                return Err(KernelError::PartSize {
                    format,
                    part,
                    rows,
                    cols,
                    expected,
                    got,
                });
            }
        }
        Ok(())
    }

    /// Columns that cannot be parted.
    fn column_group(&self) -> usize {
        match self {
            QuantizedWeight::Nvfp4 { .. } => 16,
            QuantizedWeight::Mxfp4 { .. } => 32,
            QuantizedWeight::Fp8 { .. } => 1,
            QuantizedWeight::Int4 { .. } => 8,
        }
    }

    /// What each part is called, the bytes it has and those it needs.
    fn sizes(&self, rows: usize, cols: usize) -> Vec<(&'static str, usize, usize)> {
        match *self {
            QuantizedWeight::Nvfp4 { codes, scales, .. } => vec![
                ("codes", codes.len(), rows * cols / 2),
                ("scales", scales.len(), rows * cols / 16),
            ],
            QuantizedWeight::Mxfp4 { codes, scales } => vec![
                ("codes", codes.len(), rows * cols / 2),
                ("scales", scales.len(), rows * cols / 32),
            ],
            QuantizedWeight::Fp8 { codes, scales } => {
                let blocks = rows.div_ceil(scales.block[0].max(1)) * cols.div_ceil(scales.block[1].max(1));
                vec![
                    ("codes", codes.len(), rows * cols),
                    ("scales", scales.bytes.len(), blocks * scales.dtype.bytes()),
                ]
            }
            QuantizedWeight::Int4 {
                codes,
                scales,
                zeros,
                group_len,
                group_of,
            } => {
                let groups = cols.div_ceil(group_len.max(1));
                let known = group_of.map_or(cols * 4, <[u8]>::len);
                vec![
                    ("codes", codes.len(), rows * cols / 2),
                    ("scales", scales.len(), groups * rows * 2),
                    ("zeros", zeros.len(), groups * rows.div_ceil(8) * 4),
                    ("group indices", known, cols * 4),
                ]
            }
        }
    }
}

impl Fp8Scales<'_> {
    fn at(&self, row: usize, col: usize, cols: usize) -> f32 {
        let across = cols.div_ceil(self.block[1].max(1));
        let index = row / self.block[0].max(1) * across + col / self.block[1].max(1);
        let size = self.dtype.bytes();
        let b = &self.bytes[index * size..(index + 1) * size];
        match self.dtype {
            ScaleType::F32 => f32::from_le_bytes([b[0], b[1], b[2], b[3]]),
            ScaleType::BF16 => half::bf16::from_le_bytes([b[0], b[1]]).to_f32(),
            ScaleType::E8M0 => reference::decode_e8m0(b[0]),
        }
    }
}

/// Reads rows of a cut.
struct Reader<'a> {
    weight: &'a QuantizedWeight<'a>,
    shape: [usize; 2],
    cut: &'a Cut,
}

impl Reader<'_> {
    /// The format of the packed rows. Groups of INT4 may be any sets of columns: where they are not even runs of sixteen,
    /// the weights are stored as numbers.
    fn dtype(&self) -> DType {
        match self.weight {
            QuantizedWeight::Nvfp4 { .. } => DType::Nvfp4,
            QuantizedWeight::Mxfp4 { .. } => DType::Mxfp4,
            QuantizedWeight::Fp8 { .. } => DType::F8E4M3,
            QuantizedWeight::Int4 { .. } => {
                let groups: Vec<usize> = self.cut.cols.clone().map(|col| self.int4_group(col)).collect();
                let even = |len: usize| groups.chunks(len).all(|run| run.iter().all(|group| *group == run[0]));
                match () {
                    () if even(BLOCK) => DType::Int4,
                    () if even(BLOCK / 2) => DType::Int4G16,
                    () => DType::F32,
                }
            }
        }
    }

    /// Columns that share an FP8 scale, counted from the cut's first.
    fn scale_cols(&self) -> usize {
        let Range { start, end } = self.cut.cols;
        match self.weight {
            QuantizedWeight::Fp8 { scales, .. } => {
                let block = scales.block[1].max(1);
                let within_one = end <= (start / block + 1) * block;
                if within_one {
                    (end - start).max(1)
                } else {
                    common_divisor(block, start)
                }
            }
            _ => 1,
        }
    }

    /// Appends a row's blocks.
    fn read_row(&self, dtype: DType, row: usize, out: &mut Vec<u8>) {
        match *self.weight {
            QuantizedWeight::Nvfp4 { codes, scales, .. } => self.read_pairs(codes, scales, 16, row, out),
            QuantizedWeight::Mxfp4 { codes, scales } => self.read_pairs(codes, scales, 32, row, out),
            QuantizedWeight::Fp8 { codes, .. } => {
                let start = row * self.shape[1];
                out.extend_from_slice(&codes[start + self.cut.cols.start..start + self.cut.cols.end]);
            }
            QuantizedWeight::Int4 { .. } if dtype == DType::F32 => {
                let number = |col| {
                    let (code, (scale, zero)) = (self.int4_code(row, col), self.int4_scale(row, self.int4_group(col)));
                    (f32::from(code) - f32::from(zero)) * half::f16::from_bits(scale).to_f32()
                };
                out.extend(self.cut.cols.clone().flat_map(|col| number(col).to_le_bytes()));
            }
            QuantizedWeight::Int4 { .. } => self.read_int4(dtype, row, out),
        }
    }

    /// E2M1 codes with a byte of scale for each `group` columns.
    fn read_pairs(&self, codes: &[u8], scales: &[u8], group: usize, row: usize, out: &mut Vec<u8>) {
        let Range { start, end } = self.cut.cols;
        let [_, cols] = self.shape;
        for first in (start..end).step_by(BLOCK) {
            let last = (first + BLOCK).min(end);
            let at = row * cols;
            extend_padded(out, &scales[(at + first) / group..(at + last) / group], BLOCK / group);
            extend_padded(out, &codes[(at + first) / 2..(at + last) / 2], BLOCK / 2);
        }
    }

    fn read_int4(&self, dtype: DType, row: usize, out: &mut Vec<u8>) {
        let Range { start, end } = self.cut.cols;
        let group_len = if dtype == DType::Int4 { BLOCK } else { BLOCK / 2 };
        for first in (start..end).step_by(BLOCK) {
            let firsts = (first..first + BLOCK).step_by(group_len);
            let scales = firsts.map(|col| {
                if col < end {
                    self.int4_scale(row, self.int4_group(col))
                } else {
                    (0, 0)
                }
            });
            let scales: Vec<(u16, u8)> = scales.collect();
            out.extend(scales.iter().flat_map(|(scale, _)| scale.to_le_bytes()));
            out.extend(scales.iter().map(|(_, zero)| zero));
            let code = |col| if col < end { self.int4_code(row, col) } else { 0 };
            out.extend(
                (first..first + BLOCK)
                    .step_by(2)
                    .map(|col| code(col) | code(col + 1) << 4),
            );
        }
    }

    fn int4_code(&self, row: usize, col: usize) -> u8 {
        let QuantizedWeight::Int4 { codes, .. } = self.weight else {
            return 0;
        };
        nibble(codes, col / 8 * self.shape[0] + row, col % 8)
    }

    /// The bits of an f16 scale, and the zero point.
    fn int4_scale(&self, row: usize, group: usize) -> (u16, u8) {
        let QuantizedWeight::Int4 { scales, zeros, .. } = self.weight else {
            return (0, 0);
        };
        let [rows, _] = self.shape;
        let at = (group * rows + row) * 2;
        let zero = nibble(zeros, group * rows.div_ceil(8) + row / 8, row % 8);
        (u16::from_le_bytes([scales[at], scales[at + 1]]), zero + 1)
    }

    fn int4_group(&self, col: usize) -> usize {
        let QuantizedWeight::Int4 {
            group_len, group_of, ..
        } = self.weight
        else {
            return 0;
        };
        group_of.map_or_else(|| col / (*group_len).max(1), |group_of| group_index(group_of, col))
    }
}

fn group_index(group_of: &[u8], col: usize) -> usize {
    let b = &group_of[col * 4..col * 4 + 4];
    u32::from_le_bytes([b[0], b[1], b[2], b[3]]) as usize
}

/// Four bits of word `word`.
fn nibble(words: &[u8], word: usize, index: usize) -> u8 {
    words[word * 4 + index / 2] >> (index % 2 * 4) & 15
}

/// Appends `bytes` and zeros, `len` in all.
fn extend_padded(out: &mut Vec<u8>, bytes: &[u8], len: usize) {
    let end = out.len() + len;
    out.extend_from_slice(bytes);
    out.resize(end, 0);
}

fn common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests;
