//! Weights of logits, drawing by weight, and log-probabilities.

use cluster_messages::TokenLogprobs;

use super::select::{Candidate, best, highest};

/// Weights that are summed together. A draw first finds the group, then the token in it.
const GROUP: usize = 256;

/// `exp` for arguments up to zero, to about two units in the last place; zero below -87.
///
/// Cody-Waite reduction and a polynomial, in plain additions and multiplications: the same bits on every machine, and the
/// compiler turns a loop over it into vector code.
pub(crate) fn exp(x: f32) -> f32 {
    const LOG2_E: f32 = std::f32::consts::LOG2_E;
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    // Adding this rounds to an integer, which then stands in the low bits.
    const ROUND: f32 = 12_582_912.0;
    let clamped = if x > -87.0 { x } else { -87.0 };
    let rounded = clamped * LOG2_E + ROUND;
    let exponent = rounded.to_bits().wrapping_sub(ROUND.to_bits());
    let whole = rounded - ROUND;
    let rest = clamped - whole * LN_2_HIGH - whole * LN_2_LOW;
    let tail = 1.0 / 24.0 + rest * (1.0 / 120.0 + rest * (1.0 / 720.0 + rest * (1.0 / 5040.0)));
    let polynomial = 1.0 + rest * (1.0 + rest * (0.5 + rest * (1.0 / 6.0 + rest * tail)));
    let scale = f32::from_bits(exponent.wrapping_add(127) << 23);
    if x > -87.0 { polynomial * scale } else { 0.0 }
}

/// The weight of a logit relative to the highest one, which has 1.
pub(crate) fn weight(logit: f32, highest: f32, temperature: f32) -> f32 {
    exp((logit - highest) / temperature)
}

/// Fills `out` with the weight of each logit and returns their sum; none if no logit is above minus infinity.
pub(crate) fn weights(logits: &[f32], temperature: f32, out: &mut Vec<f32>) -> Option<f64> {
    let highest = highest(logits);
    if highest == f32::NEG_INFINITY {
        return None;
    }
    out.clear();
    out.extend(logits.iter().map(|logit| weight(*logit, highest, temperature)));
    Some(out.chunks(GROUP).map(sum).sum())
}

/// The index at which the running sum of weights passes `uniform` of the total. A weight of zero is never drawn.
pub(crate) fn draw(weights: &[f32], uniform: f64) -> Option<usize> {
    let total: f64 = weights.chunks(GROUP).map(sum).sum();
    let mut left = uniform * total;
    let mut last = None;
    for (group, chunk) in weights.chunks(GROUP).enumerate() {
        let share = sum(chunk);
        if left >= share {
            left -= share;
            continue;
        }
        for (index, weight) in chunk.iter().enumerate() {
            if *weight > 0.0 {
                last = Some(group * GROUP + index);
                left -= f64::from(*weight);
                if left < 0.0 {
                    return last;
                }
            }
        }
    }
    // Rounding left a crumb behind the end of a group: it belongs to the last token seen, or to the last one there is.
    last.or_else(|| weights.iter().rposition(|weight| *weight > 0.0))
}

/// Eight running sums, which the compiler keeps in vector registers.
fn sum(weights: &[f32]) -> f64 {
    let mut lanes = [0.0f32; 8];
    let chunks = weights.chunks_exact(8);
    let rest = chunks.remainder();
    for chunk in chunks {
        for (lane, weight) in lanes.iter_mut().zip(chunk) {
            *lane += weight;
        }
    }
    lanes.iter().chain(rest).map(|part| f64::from(*part)).sum()
}

/// The lowest log-probability that is reported: minus infinity cannot be written in JSON.
pub(crate) const LOGPROB_MIN: f32 = -9999.0;

/// Log-probabilities of the model's own distribution: of the chosen token and of the `top` best.
pub(crate) fn logprobs(logits: &[f32], chosen: u32, top: u8) -> TokenLogprobs {
    let highest = highest(logits);
    let normalizer = f64::from(highest) + total(logits, highest).ln();
    // Comparing this way round also turns what is no number into the lowest.
    let logprob = |logit: f32| ((f64::from(logit) - normalizer) as f32).max(LOGPROB_MIN);
    let mut candidates: Vec<Candidate> = Vec::new();
    best(logits, usize::from(top), &mut candidates);
    TokenLogprobs {
        chosen: logprob(logits[chosen as usize]),
        top: candidates
            .iter()
            .map(|candidate| (candidate.id, logprob(candidate.logit)))
            .collect(),
    }
}

/// The sum of all weights at temperature 1.
fn total(logits: &[f32], highest: f32) -> f64 {
    let mut weights = [0.0; GROUP];
    let group = |chunk: &[f32]| {
        let weights = &mut weights[..chunk.len()];
        for (place, logit) in weights.iter_mut().zip(chunk) {
            *place = weight(*logit, highest, 1.0);
        }
        sum(weights)
    };
    logits.chunks(GROUP).map(group).sum()
}
