//! Products into buffers that take the right length, also with matrices of which a rank has nothing.

use cluster_kernels::{Cpu, Matrix};

use crate::weights::Linear;

/// Multiplies `x` with each matrix.
pub(super) fn matmul(cpu: &Cpu, x: &[f32], outputs: &mut [(&Matrix, &mut Vec<f32>)]) {
    let cols = outputs.first().map_or(0, |(first, _)| first.cols());
    let rows = x.len().checked_div(cols).unwrap_or(0);
    matmul_rows(cpu, x, rows, outputs);
}

/// As `matmul`, for `rows` rows, which may have no columns: their products are zero.
pub(super) fn matmul_rows(cpu: &Cpu, x: &[f32], rows: usize, outputs: &mut [(&Matrix, &mut Vec<f32>)]) {
    let mut products: Vec<(&Matrix, &mut [f32])> = Vec::with_capacity(outputs.len());
    for (matrix, out) in outputs.iter_mut() {
        out.resize(rows * matrix.rows(), 0.0);
        if matrix.cols() == 0 {
            out.fill(0.0);
        } else if !out.is_empty() {
            products.push((matrix, out));
        }
    }
    if !products.is_empty() {
        cpu.matmul(x, rows, &mut products);
    }
}

/// As `matmul`, with biases.
pub(super) fn linear(cpu: &Cpu, x: &[f32], outputs: &mut [(&Linear, &mut Vec<f32>)]) {
    let mut products: Vec<_> = outputs
        .iter_mut()
        .map(|(linear, out)| (&linear.matrix, &mut **out))
        .collect();
    matmul(cpu, x, &mut products);
    for (linear, out) in outputs {
        if let Some(bias) = linear.bias.as_ref().filter(|bias| !bias.is_empty()) {
            cpu.add_bias(out, bias);
        }
    }
}
