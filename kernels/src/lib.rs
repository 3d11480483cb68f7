//! Tensors and numeric operations: the slow reference, the fast CPU versions and the thread pool.
//!
//! Knows numbers, shapes and memory; does not know requests, files, models or anything that awaits.
//!
//! ```text
//!   file bytes ──Cpu::matrix──▶ Matrix (repacked, still quantized) ─┐     (matrix_of: codes and scales in parts)
//!   f32 rows ───────────────────────────────────────────────────────┴─Cpu::matmul──▶ f32 rows
//!   keys, values ──KvStore::write──▶ pages ──Cpu::attention──▶ f32 rows
//! ```
//!
//! One promise holds for every operation: the bits of a result row depend on that row's inputs alone, never on the other
//! rows of the call, on the number of threads, or on how a sequence was cut into calls. Each output number is reduced in
//! one fixed order, and all instruction sets perform the same IEEE operations, so they agree to the last bit too.
#![warn(missing_docs)]

mod collective;
mod cpu;
mod crowd;
mod dtype;
mod error;
mod kv;
mod matrix;
mod memory;
pub mod reference;

pub use collective::{Collective, CollectiveError, SharedMemory, shared_memory};
pub use cpu::attention::{Attention, Sequence};
pub use cpu::dense_attention::DenseAttention;
pub use cpu::experts::{Activation, Expert, Routing};
pub use cpu::rope::{RopeStyle, Rotations};
pub use cpu::{Cpu, CpuOptions, Isa};
pub use dtype::DType;
pub use error::KernelError;
pub use kv::{KvDType, KvShape, KvStore};
pub use matrix::{Arithmetic, Cut, Fp8Scales, Matrix, QuantizedWeight, ScaleType};
