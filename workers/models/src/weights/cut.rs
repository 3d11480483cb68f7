//! Parts of matrices in a file's bytes: some runs of rows, some columns.

use std::{borrow::Cow, ops::Range};

use cluster_kernels::KernelError;

use crate::checkpoint::Tensor;

/// Which part of a matrix.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Cut {
    /// One after the other; a row may be taken twice.
    pub(crate) rows: Vec<Range<usize>>,
    pub(crate) cols: Range<usize>,
}

impl Cut {
    /// Some rows with all `cols` columns.
    pub(crate) fn rows(rows: Range<usize>, cols: usize) -> Self {
        Self {
            rows: std::iter::once(rows).collect(),
            cols: 0..cols,
        }
    }

    /// Some columns of all `rows` rows.
    pub(crate) fn cols(rows: usize, cols: Range<usize>) -> Self {
        Self {
            rows: std::iter::once(0..rows).collect(),
            cols,
        }
    }

    /// The rows and columns of the part.
    pub(crate) fn shape(&self) -> [usize; 2] {
        [self.rows.iter().map(Range::len).sum(), self.cols.len()]
    }

    /// The part's bytes of a matrix `[rows, cols]`.
    ///
    /// # Errors
    /// When the columns are not whole blocks of the format.
    pub(crate) fn of<'a>(&self, tensor: &Tensor<'a>, cols: usize) -> Result<Cow<'a, [u8]>, KernelError> {
        let (dtype, block_len) = (tensor.dtype, tensor.dtype.block_len());
        if let Some(cols) = [self.cols.start, self.cols.end]
            .into_iter()
            .find(|end| !end.is_multiple_of(block_len))
        {
            return Err(KernelError::RaggedRow { dtype, cols, block_len });
        }
        let row_bytes = dtype.row_bytes(cols);
        let whole_rows = self.cols == (0..cols);
        if let ([rows], true) = (&*self.rows, whole_rows) {
            return Ok(Cow::Borrowed(
                &tensor.bytes[rows.start * row_bytes..rows.end * row_bytes],
            ));
        }
        let columns = dtype.row_bytes(self.cols.start)..dtype.row_bytes(self.cols.end);
        let rows = self.rows.iter().cloned().flatten();
        let bytes = rows.flat_map(|row| &tensor.bytes[row * row_bytes..][columns.clone()]);
        Ok(Cow::Owned(bytes.copied().collect()))
    }
}

#[cfg(test)]
mod tests;
