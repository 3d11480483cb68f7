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
