//! A weight matrix as the kernels read it.

use crate::{DType, KernelError, reference};

/// How a product with quantized weights is computed. Float formats ignore it: their activations stay f32.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Arithmetic {
    /// f32 activations times dequantized weights.
    Exact,
    /// Activations rounded to 8 bits in groups of 32, integer products within a group. Several times faster.
    Int8,
}

/// A weight `[rows, cols]`: `rows` outputs, `cols` inputs.
pub struct Matrix {
    dtype: DType,
    rows: usize,
    cols: usize,
    arithmetic: Arithmetic,
    packed: Vec<u8>,
}

impl Matrix {
    pub(crate) fn pack(
        dtype: DType,
        rows: usize,
        cols: usize,
        bytes: &[u8],
        arithmetic: Arithmetic,
    ) -> Result<Self, KernelError> {
        check_shape(dtype, rows, cols, bytes.len())?;
        Ok(Self {
            dtype,
            rows,
            cols,
            arithmetic,
            packed: bytes.to_vec(),
        })
    }

    /// Outputs.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Inputs.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// The format it came in and is kept in.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// How products with it are computed.
    pub fn arithmetic(&self) -> Arithmetic {
        self.arithmetic
    }

    /// Bytes of memory it takes.
    pub fn bytes(&self) -> usize {
        self.packed.len()
    }

    /// Writes the exact values of a row (an embedding look-up).
    ///
    /// # Panics
    /// When there is no such row or `out` has another length.
    pub fn row_into(&self, row: usize, out: &mut [f32]) {
        let bytes = self.dtype.row_bytes(self.cols);
        reference::dequantize(self.dtype, &self.packed[row * bytes..(row + 1) * bytes], out);
    }

    pub(crate) fn packed(&self) -> &[u8] {
        &self.packed
    }
}

fn check_shape(dtype: DType, rows: usize, cols: usize, got: usize) -> Result<(), KernelError> {
    let block_len = dtype.block_len();
    if !cols.is_multiple_of(block_len) {
        return Err(KernelError::RaggedRow { dtype, cols, block_len });
    }
    let expected = rows * dtype.row_bytes(cols);
    if got != expected {
        return Err(KernelError::MatrixSize {
            dtype,
            rows,
            cols,
            expected,
            got,
        });
    }
    Ok(())
}
