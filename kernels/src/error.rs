//! What can be wrong with what a caller brings: shapes, sizes, an instruction set this machine lacks.

use crate::{DType, Isa};

/// Why a kernel object cannot be made.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum KernelError {
    /// A row is not a whole number of blocks.
    #[error("{cols} columns of {dtype:?} are not a whole number of blocks of {block_len}")]
    RaggedRow {
        /// The format.
        dtype: DType,
        /// Columns asked for.
        cols: usize,
        /// Values of a block.
        block_len: usize,
    },
    /// The bytes do not have the size the shape needs.
    #[error("{rows} x {cols} of {dtype:?} need {expected} bytes, got {got}")]
    MatrixSize {
        /// The format.
        dtype: DType,
        /// Rows asked for.
        rows: usize,
        /// Columns asked for.
        cols: usize,
        /// Bytes needed.
        expected: usize,
        /// Bytes offered.
        got: usize,
    },
    /// A part of a quantized weight does not have the size the shape needs.
    #[error("{part} of a {rows} x {cols} {format} weight need {expected} bytes, got {got}")]
    PartSize {
        /// The format.
        format: &'static str,
        /// Codes, scales or zero points.
        part: &'static str,
        /// Rows of the whole weight.
        rows: usize,
        /// Its columns.
        cols: usize,
        /// Bytes needed.
        expected: usize,
        /// Bytes offered.
        got: usize,
    },
    /// A weight whose columns, or the part of them that is asked for, are not whole groups.
    #[error("columns {start} to {end} are not whole groups of {group}, which {format} needs")]
    Group {
        /// The format.
        format: &'static str,
        /// First column.
        start: usize,
        /// Behind the last one.
        end: usize,
        /// Columns of a group.
        group: usize,
    },
    /// A column of a group that the scales do not have.
    #[error("a column belongs to group {index}, but there are only {groups}")]
    GroupIndex {
        /// The group it names.
        index: usize,
        /// How many there are.
        groups: usize,
    },
    /// A part is asked for that the weight does not have.
    #[error("a weight of {rows} x {cols} has no part of rows {row_end} and columns {col_end}")]
    Outside {
        /// Its rows.
        rows: usize,
        /// Its columns.
        cols: usize,
        /// Rows needed.
        row_end: usize,
        /// Columns needed.
        col_end: usize,
    },
    /// A KV shape that pages cannot have.
    #[error("kv shape field {field} is {got}: must be {rule}")]
    KvShape {
        /// Which field.
        field: &'static str,
        /// Its value.
        got: usize,
        /// What it must be.
        rule: &'static str,
    },
    /// A page offered for import has another size.
    #[error("kv page of {got} bytes where {expected} were expected")]
    PageSize {
        /// Bytes of a page.
        expected: usize,
        /// Bytes offered.
        got: usize,
    },
    /// The system has no memory of this size.
    #[error("cannot allocate {0} bytes")]
    Memory(usize),
    /// The instruction set asked for is not there.
    #[error("this machine cannot run {0:?} kernels")]
    IsaMissing(Isa),
    /// A pool needs a thread.
    #[error("cannot start a pool of {threads} threads: {reason}")]
    Threads {
        /// Threads asked for.
        threads: usize,
        /// What the system said.
        reason: String,
    },
}
