//! From logits to a token: penalties, bias, masks, temperature, cuts, draw.
//!
//! ```text
//!  logits ─▶ penalties ─▶ bias ─▶ banned tokens ─▶ ÷ temperature ─▶ top-k ─▶ top-p ─▶ min-p ─▶ draw(seed, position)
//! ```
//! A choice is a pure function of its arguments: batch, worker and step do not enter. Tokens are ordered by falling logit,
//! equal ones by rising id. A logit that is not a number counts as minus infinity. `exp` is our own, so that two machines
//! with different C libraries draw the same token.
//!
//! Cost: greedy reads the row once or twice (196 KB for 49,152 tokens); drawing reads it about four times. No cut sorts the
//! row.

use cluster_messages::Sampling;

use crate::{history::History, rng};
use select::{Candidate, best};

mod nucleus;
mod select;
mod softmax;
#[cfg(test)]
use softmax::LOGPROB_MIN;
pub(crate) use softmax::logprobs;

/// Below this temperature the best token is taken: dividing by it would only amplify rounding.
const TEMPERATURE_MIN: f32 = 1e-5;

/// What a choice depends on besides the logits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Draw<'a> {
    pub(crate) sampling: &'a Sampling,
    /// The position that the token will have.
    pub(crate) position: u32,
    /// Tokens that must not be chosen.
    pub(crate) banned: &'a [u32],
    /// Tokens seen before; none where there are no penalties.
    pub(crate) history: Option<&'a History>,
}

impl Draw<'_> {
    fn is_greedy(&self) -> bool {
        self.sampling.temperature < TEMPERATURE_MIN
    }

    fn changes_logits(&self) -> bool {
        self.history.is_some() || !self.sampling.logit_bias.is_empty() || !self.banned.is_empty()
    }
}

/// Memory that is reused between choices.
#[derive(Debug, Default)]
pub(crate) struct Sampler {
    logits: Vec<f32>,
    weights: Vec<f32>,
    candidates: Vec<Candidate>,
}

impl Sampler {
    /// The next token; none if no token can be chosen (all banned, or no logit is a number).
    pub(crate) fn choose(&mut self, logits: &[f32], draw: &Draw<'_>) -> Option<u32> {
        if draw.is_greedy() && !draw.changes_logits() {
            return select::argmax(logits);
        }
        self.logits.clear();
        self.logits.extend(logits.iter().map(|logit| sanitized(*logit)));
        adjust(&mut self.logits, draw);
        if draw.is_greedy() {
            return select::argmax(&self.logits);
        }
        let uniform = rng::uniform(draw.sampling.seed, draw.position);
        let top_k = draw.sampling.top_k as usize;
        if top_k > 0 && top_k < self.logits.len() {
            self.draw_of_best(top_k, draw.sampling, uniform)
        } else {
            self.draw_of_all(draw.sampling, uniform)
        }
    }

    fn draw_of_all(&mut self, sampling: &Sampling, uniform: f64) -> Option<u32> {
        let total = softmax::weights(&self.logits, sampling.temperature, &mut self.weights)?;
        if sampling.top_p < 1.0 {
            nucleus::keep(&mut self.weights, sampling.top_p, total);
        }
        if sampling.min_p > 0.0 {
            let floor = sampling.min_p;
            let is_low = |weight: &&mut f32| **weight < floor;
            self.weights.iter_mut().filter(is_low).for_each(|weight| *weight = 0.0);
        }
        softmax::draw(&self.weights, uniform).map(|index| index as u32)
    }

    /// The `count` best, then the other cuts among them.
    fn draw_of_best(&mut self, count: usize, sampling: &Sampling, uniform: f64) -> Option<u32> {
        best(&self.logits, count, &mut self.candidates);
        let highest = self.candidates.first()?.logit;
        let weight = |candidate: &Candidate| softmax::weight(candidate.logit, highest, sampling.temperature);
        self.weights.clear();
        self.weights.extend(self.candidates.iter().map(weight));
        let kept = kept_of_falling(&self.weights, sampling);
        let index = softmax::draw(&self.weights[..kept], uniform)?;
        Some(self.candidates[index].id)
    }
}

/// How many of these falling weights `top_p` and `min_p` keep; always the first.
fn kept_of_falling(weights: &[f32], sampling: &Sampling) -> usize {
    let total: f64 = weights.iter().map(|weight| f64::from(*weight)).sum();
    let goal = f64::from(sampling.top_p) * total;
    let mut sum = 0.0;
    let is_kept = |weight: &&f32| {
        let before = sum;
        sum += f64::from(**weight);
        before < goal && **weight >= sampling.min_p
    };
    weights.iter().take_while(is_kept).count().max(1)
}

fn sanitized(logit: f32) -> f32 {
    if logit.is_nan() {
        f32::NEG_INFINITY
    } else {
        logit.min(f32::MAX)
    }
}

fn adjust(logits: &mut [f32], draw: &Draw<'_>) {
    if let Some(history) = draw.history {
        penalize(logits, draw.sampling, history);
    }
    for (token, bias) in &draw.sampling.logit_bias {
        logits[*token as usize] += bias;
    }
    for token in draw.banned {
        logits[*token as usize] = f32::NEG_INFINITY;
    }
}

fn penalize(logits: &mut [f32], sampling: &Sampling, history: &History) {
    let penalties = &sampling.penalties;
    for (token, count) in history.iter() {
        let logit = &mut logits[token as usize];
        *logit = if *logit > 0.0 {
            *logit / penalties.repetition
        } else {
            *logit * penalties.repetition
        };
        if count > 0 {
            *logit -= penalties.frequency * count as f32 + penalties.presence;
        }
    }
}

#[cfg(test)]
mod tests;
