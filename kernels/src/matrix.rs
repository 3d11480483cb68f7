//! A weight matrix as the kernels read it: repacked once into panels of sixteen rows, quantized as in the file.

pub(crate) mod layout;
mod pack;
mod quantized;

use std::sync::Mutex;

use crate::cpu::pool::Pool;
use crate::memory::AlignedBytes;
use crate::{DType, KernelError, reference};
use layout::{PANEL, Parts, with_format};

pub use quantized::{Cut, Fp8Scales, QuantizedWeight, ScaleType};

/// How a product with quantized weights is computed. Float formats ignore it: their activations stay f32.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Arithmetic {
    /// f32 activations times dequantized weights.
    Exact,
    /// Activations rounded to 8 bits in groups of 32, integer products within a group. Several times faster.
    Int8,
    /// Activations as two 8-bit digits in groups of 32, the second for what the first leaves over: results as good as
    /// exact ones, for twice the integer products and the same reading of weights.
    Int16,
}

impl Arithmetic {
    /// 8-bit digits of an activation; 0 where activations stay floats.
    pub(crate) const fn digits(self) -> usize {
        match self {
            Arithmetic::Exact => 0,
            Arithmetic::Int8 => 1,
            Arithmetic::Int16 => 2,
        }
    }
}

/// A weight `[rows, cols]`: `rows` outputs, `cols` inputs.
pub struct Matrix {
    dtype: DType,
    rows: usize,
    cols: usize,
    arithmetic: Arithmetic,
    /// Multiplies every weight of NVFP4.
    scale: f32,
    parts: Box<Parts>,
    packed: AlignedBytes,
}

impl std::fmt::Debug for Matrix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Matrix({:?} {} x {}, {:?})",
            self.dtype, self.rows, self.cols, self.arithmetic
        )
    }
}

impl Matrix {
    pub(crate) fn pack(
        pool: &Pool,
        dtype: DType,
        rows: usize,
        cols: usize,
        bytes: &[u8],
        arithmetic: Arithmetic,
    ) -> Result<Self, KernelError> {
        check_shape(dtype, rows, cols, bytes.len())?;
        let mut matrix = Self::empty(dtype, [rows, cols], Parts::new(dtype, cols), arithmetic)?;
        let panel_bytes = PANEL * dtype.row_bytes(cols);
        matrix.fill(pool, |parts, index, panel| {
            let file = &bytes[index * panel_bytes..((index + 1) * panel_bytes).min(bytes.len())];
            pack_panel(dtype, cols, parts, file, panel);
            if dtype == DType::F8E4M3 {
                pack::put_scales(parts, 0, [1.0; PANEL], panel);
            }
        });
        Ok(matrix)
    }

    /// All zero.
    fn empty(
        dtype: DType,
        [rows, cols]: [usize; 2],
        parts: Parts,
        arithmetic: Arithmetic,
    ) -> Result<Self, KernelError> {
        Ok(Self {
            dtype,
            rows,
            cols,
            arithmetic,
            scale: 1.0,
            packed: AlignedBytes::zeroed(rows.div_ceil(PANEL) * parts.bytes)?,
            parts: Box::new(parts),
        })
    }

    /// Calls `pack` for each panel, with its index and its bytes.
    fn fill(&mut self, pool: &Pool, pack: impl Fn(&Parts, usize, &mut [u8]) + Sync) {
        if self.cols == 0 {
            return;
        }
        let parts = &self.parts;
        let jobs: Vec<_> = self.packed.chunks_exact_mut(parts.bytes).map(Mutex::new).collect();
        pool.for_each(jobs.len(), &|index| {
            let mut panel = jobs[index].try_lock().expect("every panel is packed by one thread");
            pack(parts, index, &mut panel);
        });
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
        assert!(row < self.rows, "row {row} of {}", self.rows);
        assert_eq!(out.len(), self.cols, "a row has {} columns", self.cols);
        let (panel, row) = (self.panel(row / PANEL), row % PANEL);
        with_format!(self.dtype, F => pack::unpack_row::<F>(&self.parts, panel, row, self.scale, out), {
            let bytes = pack::unpack_float_row(self.dtype.block_bytes(), panel, row, self.cols);
            reference::dequantize(self.dtype, &bytes, out);
            if self.dtype == DType::F8E4M3 {
                pack::scale_row(&self.parts, panel, row, out);
            }
        });
    }

    /// What a product is multiplied by at its end.
    pub(crate) fn scale(&self) -> f32 {
        self.scale
    }

    /// Where things are in a panel.
    pub(crate) fn parts(&self) -> &Parts {
        &self.parts
    }

    /// How many panels; the rows past the last one's end are zero.
    pub(crate) fn panels(&self) -> usize {
        self.rows.div_ceil(PANEL)
    }

    /// The bytes of a panel.
    pub(crate) fn panel(&self, index: usize) -> &[u8] {
        &self.packed[index * self.parts.bytes..(index + 1) * self.parts.bytes]
    }
}

fn pack_panel(dtype: DType, cols: usize, parts: &Parts, file: &[u8], panel: &mut [u8]) {
    for (row, file) in file.chunks_exact(dtype.row_bytes(cols)).enumerate() {
        with_format!(
            dtype,
            F => pack::pack_row::<F>(dtype, parts, file, row, panel),
            pack::pack_float_row(dtype.block_bytes(), file, row, panel)
        );
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

#[cfg(test)]
pub(crate) mod tests;
