//! Rotary positions: which angle a pair of channels turns by per position.

use std::f64::consts::PI;

/// How queries and keys are rotated. Channel i is paired with channel i + head_dim / 2.
#[derive(Clone, PartialEq, Debug)]
pub struct Rope {
    /// The base of the geometric row of angles.
    pub theta: f64,
    /// What is done to the angles to reach further than the model was first trained for.
    pub scaling: RopeScaling,
    /// Whether the file has a tensor of numbers that the angles are divided by (GGUF only).
    pub divisors: bool,
}

/// Ways to stretch the angles.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum RopeScaling {
    /// Not at all.
    None,
    /// All by the same factor.
    Linear {
        /// Angles are divided by it.
        factor: f64,
    },
    /// Only the slow ones, with a ramp between.
    Llama3 {
        /// Slow angles are divided by it.
        factor: f64,
        /// Wavelengths above context / this are slow.
        low: f64,
        /// Wavelengths below context / this stay.
        high: f64,
        /// The context of the first training.
        context: f64,
    },
    /// As Llama3 with a ramp over the channel number, and a correction of the attention's temperature.
    Yarn {
        /// Slow angles are divided by it.
        factor: f64,
        /// Turns over the context from which on an angle stays.
        fast: f64,
        /// Turns over the context below which an angle is slow.
        slow: f64,
        /// The context of the first training.
        context: f64,
        /// What rotated queries and keys are multiplied by.
        amplitude: f64,
    },
}

impl Rope {
    /// The angle per position of each of the `head_dim / 2` pairs.
    pub fn frequencies(&self, head_dim: usize) -> Vec<f32> {
        let pairs = head_dim / 2;
        (0..pairs)
            .map(|pair| {
                let frequency = self.theta.powf(-2.0 * pair as f64 / head_dim as f64);
                self.scaling.apply(frequency, pair, head_dim, self.theta) as f32
            })
            .collect()
    }

    /// What rotated queries and keys are multiplied by.
    pub fn magnitude(&self) -> f32 {
        match self.scaling {
            RopeScaling::Yarn { amplitude, .. } => amplitude as f32,
            _ => 1.0,
        }
    }
}

impl RopeScaling {
    /// The amplitude that the authors of Yarn give for a factor.
    pub(super) fn yarn_amplitude(factor: f64) -> f64 {
        if factor <= 1.0 { 1.0 } else { 0.1 * factor.ln() + 1.0 }
    }

    fn apply(self, frequency: f64, pair: usize, head_dim: usize, theta: f64) -> f64 {
        match self {
            RopeScaling::None => frequency,
            RopeScaling::Linear { factor } => frequency / factor,
            RopeScaling::Llama3 {
                factor,
                low,
                high,
                context,
            } => {
                let keep = ((context * frequency / (2.0 * PI) - low) / (high - low)).clamp(0.0, 1.0);
                blend(frequency, factor, keep)
            }
            RopeScaling::Yarn {
                factor,
                fast,
                slow,
                context,
                ..
            } => {
                // The channel whose angle makes this many turns over the context.
                let channel = |turns: f64| head_dim as f64 * (context / (2.0 * PI * turns)).ln() / (2.0 * theta.ln());
                let first = channel(fast).floor().max(0.0);
                let mut last = channel(slow).ceil().min(head_dim as f64 - 1.0);
                if last == first {
                    last += 0.001;
                }
                let keep = 1.0 - ((pair as f64 - first) / (last - first)).clamp(0.0, 1.0);
                blend(frequency, factor, keep)
            }
        }
    }
}

fn blend(frequency: f64, factor: f64, keep: f64) -> f64 {
    keep * frequency + (1.0 - keep) * frequency / factor
}
