//! The operations on this machine's processor.

pub(crate) mod experts;
mod gemm;
mod lanes;
mod math;
pub(crate) mod pool;
pub(crate) mod rope;

use crate::{Arithmetic, DType, KernelError, KvStore, Matrix, RopeStyle, Rotations, reference};
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

/// One call of attention: which layer, how many query heads, and whose tokens the queries are.
#[derive(Clone, Copy, Debug)]
pub struct Attention<'a> {
    /// The layer whose pages are read.
    pub layer: usize,
    /// Query heads, a multiple of the store's heads.
    pub heads: usize,
    /// Multiplies the scores before softmax.
    pub scale: f32,
    /// When given, a query reads only this many positions, its own the last.
    pub window: Option<usize>,
    /// Whose rows the queries are, in order.
    pub sequences: &'a [Sequence<'a>],
}

/// Consecutive tokens of one sequence, their keys and values written before.
#[derive(Clone, Copy, Debug)]
pub struct Sequence<'a> {
    /// The sequence's blocks from position 0 on.
    pub blocks: &'a [u32],
    /// The position of the first token.
    pub start: usize,
    /// How many tokens.
    pub tokens: usize,
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

    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// `weight ⊙ x / sqrt(mean(x²) + epsilon)` for every row of `weight.len()`.
    pub fn rms_norm(&self, x: &[f32], weight: &[f32], epsilon: f32, out: &mut [f32]) {
        reference::rms_norm(x, weight, epsilon, out);
    }

    /// As [`Cpu::rms_norm`], in place (head norms).
    pub fn rms_norm_in_place(&self, x: &mut [f32], weight: &[f32], epsilon: f32) {
        let copy = x.to_vec();
        reference::rms_norm(&copy, weight, epsilon, x);
    }

    /// Rotates `x`, `[rotations.len(), heads, head_dim]`, in place.
    pub fn rope(&self, x: &mut [f32], head_dim: usize, rotations: &Rotations, style: RopeStyle) {
        rotations.apply(x, head_dim, style);
    }

    /// `gate ← silu(gate) ⊙ up`.
    pub fn silu_mul(&self, gate: &mut [f32], up: &[f32]) {
        for (gate, up) in gate.iter_mut().zip(up) {
            *gate = reference::silu(*gate) * up;
        }
    }

    /// `gate ← gelu_tanh(gate) ⊙ up`.
    pub fn gelu_tanh_mul(&self, gate: &mut [f32], up: &[f32]) {
        for (gate, up) in gate.iter_mut().zip(up) {
            *gate = reference::gelu_tanh(*gate) * up;
        }
    }

    /// `x ← x + y`.
    pub fn add_assign(&self, x: &mut [f32], y: &[f32]) {
        for (x, y) in x.iter_mut().zip(y) {
            *x += y;
        }
    }

    /// Adds `bias` to every row of `bias.len()`.
    pub fn add_bias(&self, x: &mut [f32], bias: &[f32]) {
        for row in x.chunks_exact_mut(bias.len()) {
            self.add_assign(row, bias);
        }
    }

    /// Softmax of every row of `cols`, in place.
    pub fn softmax(&self, x: &mut [f32], cols: usize) {
        x.chunks_exact_mut(cols).for_each(reference::softmax);
    }

    /// Causal attention of `queries[n, heads, head_dim]` over the pages of `kv`; `out` has the queries' shape. A query at
    /// position p reads positions 0 to p (or the window's), which must have been written.
    ///
    /// # Panics
    /// When a slice does not fit its shape or a table is too short.
    pub fn attention(&self, kv: &KvStore, call: &Attention<'_>, queries: &[f32], out: &mut [f32]) {
        reference::attention(kv, call, queries, out);
    }
}
