//! Norms, activations, rotation, softmax.

use crate::RopeStyle;

/// `weight ⊙ x / sqrt(mean(x²) + epsilon)`, row by row of `weight.len()`.
pub fn rms_norm(x: &[f32], weight: &[f32], epsilon: f32, out: &mut [f32]) {
    let cols = weight.len();
    for (x, out) in x.chunks_exact(cols).zip(out.chunks_exact_mut(cols)) {
        let squares: f64 = x.iter().map(|x| f64::from(*x) * f64::from(*x)).sum();
        let scale = 1.0 / (squares / cols as f64 + f64::from(epsilon)).sqrt();
        for ((out, x), w) in out.iter_mut().zip(x).zip(weight) {
            *out = (f64::from(*x) * scale * f64::from(*w)) as f32;
        }
    }
}

/// `x / (1 + e^-x)`.
pub fn silu(x: f32) -> f32 {
    let x = f64::from(x);
    (x / (1.0 + (-x).exp())) as f32
}

/// `x/2 · (1 + tanh(√(2/π) (x + 0.044715 x³)))`.
pub fn gelu_tanh(x: f32) -> f32 {
    let x = f64::from(x);
    let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x * x * x);
    (0.5 * x * (1.0 + inner.tanh())) as f32
}

/// `e^x / Σ e^x` over the whole slice.
pub fn softmax(x: &mut [f32]) {
    let max = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weights: Vec<f64> = x.iter().map(|x| f64::from(x - max).exp()).collect();
    let sum: f64 = weights.iter().sum();
    for (x, weight) in x.iter_mut().zip(&weights) {
        *x = (weight / sum) as f32;
    }
}

/// Rotates the first `2 · inverse_frequencies.len()` channels of every head; `x` is `[positions.len(), heads, head_dim]`.
pub fn rope(x: &mut [f32], head_dim: usize, positions: &[u32], inverse_frequencies: &[f32], style: RopeStyle) {
    let pairs = inverse_frequencies.len();
    let row = x.len() / positions.len();
    for (row, position) in x.chunks_exact_mut(row).zip(positions) {
        for head in row.chunks_exact_mut(head_dim) {
            for (i, frequency) in inverse_frequencies.iter().enumerate() {
                let (first, second) = style.pair(i, pairs);
                let (sin, cos) = (*position as f32 * frequency).sin_cos();
                let (a, b) = (head[first], head[second]);
                head[first] = a * cos - b * sin;
                head[second] = b * cos + a * sin;
            }
        }
    }
}
