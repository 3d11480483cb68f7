//! The slow, obvious versions: what every fast kernel is tested against.
//!
//! Written to be proofread against the formulas, with no thought of speed. Sums run in f64, so that a difference is the
//! fast kernel's rounding and not this one's.

mod attention;
mod dequantize;
mod elementwise;
mod matmul;
mod requantize;
mod small_floats;

pub use attention::attention;
pub use dequantize::dequantize;
pub(crate) use dequantize::{q3_k_scale, q4_k_scale};
pub use elementwise::{gelu_tanh, rms_norm, rope, silu, softmax};
pub use matmul::matmul;
pub use requantize::{FourBits, nvfp4_to_mxfp4, quantize_mxfp4, quantize_nvfp4};
pub use small_floats::{E2M1_MAX, E4M3_MAX, decode_e2m1, decode_e4m3, decode_e8m0, encode_e2m1, encode_e4m3};

#[cfg(test)]
mod tests;
