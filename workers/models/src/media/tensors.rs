//! Tensors of the towers, whole or one rank's part of them.

use std::ops::Range;

use cluster_kernels::{Arithmetic, Cpu, Matrix, reference};

use crate::{WeightsError, safetensors::SafetensorsFolder};

/// A matrix with its bias.
pub(crate) struct Linear {
    pub(crate) matrix: Matrix,
    pub(crate) bias: Vec<f32>,
}

/// The weights of a norm with a bias.
pub(crate) struct Norm {
    pub(crate) weight: Vec<f32>,
    pub(crate) bias: Vec<f32>,
}

/// Reads tensors of one checkpoint.
pub(crate) struct Tensors<'a> {
    pub(crate) files: &'a SafetensorsFolder,
    pub(crate) cpu: &'a Cpu,
}

impl Tensors<'_> {
    /// All numbers of a tensor.
    pub(crate) fn numbers(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, WeightsError> {
        let tensor = self.files.tensor(name)?;
        check_shape(name, tensor.shape, shape)?;
        let mut numbers = vec![0.0; shape.iter().product()];
        reference::dequantize(tensor.dtype, tensor.bytes, &mut numbers);
        Ok(numbers)
    }

    /// A whole matrix.
    pub(crate) fn matrix(&self, name: &str, [rows, cols]: [usize; 2]) -> Result<Matrix, WeightsError> {
        self.part(name, [rows, cols], 0..rows, 0..cols)
    }

    /// Some rows and columns of a matrix.
    fn part(
        &self,
        name: &str,
        shape: [usize; 2],
        rows: Range<usize>,
        cols: Range<usize>,
    ) -> Result<Matrix, WeightsError> {
        let tensor = self.files.tensor(name)?;
        check_shape(name, tensor.shape, &shape)?;
        let (row_bytes, size) = (tensor.dtype.row_bytes(shape[1]), tensor.dtype.block_bytes());
        let whole = &tensor.bytes[rows.start * row_bytes..rows.end * row_bytes];
        let packed = |bytes: &[u8]| {
            self.cpu
                .matrix(tensor.dtype, rows.len(), cols.len(), bytes, Arithmetic::Exact)
                .map_err(|source| WeightsError::Kernel {
                    name: name.into(),
                    source,
                })
        };
        if cols == (0..shape[1]) {
            return packed(whole);
        }
        let rows = whole.chunks_exact(row_bytes);
        let bytes: Vec<u8> = rows
            .flat_map(|row| &row[cols.start * size..cols.end * size])
            .copied()
            .collect();
        packed(&bytes)
    }

    /// `NAME.weight` and `NAME.bias`.
    pub(crate) fn linear(&self, name: &str, shape: [usize; 2]) -> Result<Linear, WeightsError> {
        self.outputs(name, shape, 0..shape[0])
    }

    /// Some outputs of a linear layer.
    pub(crate) fn outputs(&self, name: &str, shape: [usize; 2], rows: Range<usize>) -> Result<Linear, WeightsError> {
        let bias = self.numbers(&format!("{name}.bias"), &shape[..1])?;
        Ok(Linear {
            matrix: self.part(&format!("{name}.weight"), shape, rows.clone(), 0..shape[1])?,
            bias: bias[rows].to_vec(),
        })
    }

    /// A linear layer that takes some of the inputs. Its bias is whole: it is added once the parts are.
    pub(crate) fn inputs(&self, name: &str, shape: [usize; 2], cols: Range<usize>) -> Result<Linear, WeightsError> {
        Ok(Linear {
            matrix: self.part(&format!("{name}.weight"), shape, 0..shape[0], cols)?,
            bias: self.numbers(&format!("{name}.bias"), &shape[..1])?,
        })
    }

    /// `NAME.weight` and `NAME.bias` of a norm.
    pub(crate) fn norm(&self, name: &str, width: usize) -> Result<Norm, WeightsError> {
        Ok(Norm {
            weight: self.numbers(&format!("{name}.weight"), &[width])?,
            bias: self.numbers(&format!("{name}.bias"), &[width])?,
        })
    }
}

fn check_shape(name: &str, got: &[usize], expected: &[usize]) -> Result<(), WeightsError> {
    if got == expected {
        return Ok(());
    }
    Err(WeightsError::Shape {
        name: name.into(),
        expected: expected.to_vec(),
        got: got.to_vec(),
    })
}

/// x · wᵀ.
pub(crate) fn product(cpu: &Cpu, x: &[f32], matrix: &Matrix) -> Vec<f32> {
    let rows = x.len() / matrix.cols().max(1);
    let mut out = vec![0.0; rows * matrix.rows()];
    cpu.matmul(x, rows, &mut [(matrix, &mut out)]);
    out
}

/// x · wᵀ + bias.
pub(crate) fn linear(cpu: &Cpu, x: &[f32], linear: &Linear) -> Vec<f32> {
    let mut out = product(cpu, x, &linear.matrix);
    if !out.is_empty() {
        cpu.add_bias(&mut out, &linear.bias);
    }
    out
}
