//! `out[n, rows] = x[n, cols] · wᵀ`, from a file's bytes.

use super::dequantize;
use crate::DType;

/// Multiplies `n` rows of `x` with the weight `[rows, cols]` that `bytes` hold.
pub fn matmul(dtype: DType, bytes: &[u8], cols: usize, x: &[f32], out: &mut [f32]) {
    let rows = bytes.len() / dtype.row_bytes(cols);
    let mut weight = vec![0.0; cols];
    for (row, bytes) in bytes.chunks_exact(dtype.row_bytes(cols)).enumerate() {
        dequantize(dtype, bytes, &mut weight);
        for (token, x) in x.chunks_exact(cols).enumerate() {
            let products = weight.iter().zip(x).map(|(w, x)| f64::from(*w) * f64::from(*x));
            out[token * rows + row] = products.sum::<f64>() as f32;
        }
    }
}
