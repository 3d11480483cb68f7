//! The operations on this machine's processor.

pub(crate) mod attention;
mod convolution;
pub(crate) mod dense_attention;
mod elementwise;
pub(crate) mod experts;
mod gates;
mod gemm;
mod lanes;
mod layer_norm;
mod math;
pub(crate) mod pool;
pub(crate) mod rope;

use crate::{Arithmetic, Cut, DType, KernelError, Matrix, QuantizedWeight};
use pool::Pool;

/// An instruction set level. All give the same bits; they differ in speed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Isa {
    /// Plain Rust.
    Scalar,
    /// AVX2 with FMA and F16C.
    Avx2,
    /// AVX-512 (F, BW, DQ, VL) with VNNI.
    Avx512,
}

/// How to set up a [`Cpu`].
#[derive(Clone, Copy, Debug)]
pub struct CpuOptions {
    /// Threads that work on an operation, the caller's own included.
    pub threads: usize,
    /// The instruction set; `None` takes the best this machine has.
    pub isa: Option<Isa>,
}

/// The processor: a thread pool and the kernels that suit it. Cheap to share by reference.
pub struct Cpu {
    isa: Isa,
    threads: usize,
    pool: Pool,
}

impl Cpu {
    /// Starts the pool and chooses the kernels.
    pub fn new(options: CpuOptions) -> Result<Self, KernelError> {
        let isa = options.isa.unwrap_or_else(Isa::detect);
        if !isa.available() {
            return Err(KernelError::IsaMissing(isa));
        }
        let threads = options.threads.max(1);
        let pool = Pool::new(threads)?;
        Ok(Self { isa, threads, pool })
    }

    /// The instruction set in use.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// Threads that work on an operation.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Repacks a weight `[rows, cols]` from a file's bytes. It stays quantized.
    pub fn matrix(
        &self,
        dtype: DType,
        rows: usize,
        cols: usize,
        bytes: &[u8],
        arithmetic: Arithmetic,
    ) -> Result<Matrix, KernelError> {
        Matrix::pack(&self.pool, dtype, rows, cols, bytes, arithmetic)
    }

    /// Repacks a part of a weight whose codes and scales lie apart. It stays quantized.
    pub fn matrix_of(
        &self,
        weight: &QuantizedWeight<'_>,
        [rows, cols]: [usize; 2],
        cut: &Cut,
        arithmetic: Arithmetic,
    ) -> Result<Matrix, KernelError> {
        Matrix::of(&self.pool, weight, [rows, cols], cut, arithmetic)
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }
}
