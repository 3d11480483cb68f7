//! The slow, obvious versions: what every fast kernel is tested against.
//!
//! Written to be proofread against the formulas, with no thought of speed. Sums run in f64, so that a difference is the
//! fast kernel's rounding and not this one's.

mod attention;
mod dequantize;
mod elementwise;
mod matmul;

pub use attention::attention;
pub use dequantize::dequantize;
pub(crate) use dequantize::{q3_k_scale, q4_k_scale};
pub use elementwise::{gelu_tanh, rms_norm, rope, silu, softmax};
pub use matmul::matmul;

#[cfg(test)]
mod tests;
