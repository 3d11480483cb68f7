//! Mixtures of experts: which tokens go to which expert, one product per expert, and the weighted sums.

use crate::{Cpu, Matrix};

/// Which experts each token goes to, `per_token` of them, in order.
#[derive(Clone, Debug, Default)]
pub struct Routing {
    per_token: usize,
    choices: Vec<(u32, f32)>,
}

impl Routing {
    /// Takes `per_token` choices (expert, weight) for each token, token after token.
    ///
    /// # Panics
    /// When `choices` is not a whole number of tokens.
    pub fn new(per_token: usize, choices: Vec<(u32, f32)>) -> Self {
        assert_eq!(choices.len() % per_token, 0, "{per_token} choices per token");
        Self { per_token, choices }
    }

    /// The choices of a token.
    pub fn token(&self, token: usize) -> &[(u32, f32)] {
        &self.choices[token * self.per_token..(token + 1) * self.per_token]
    }

    /// How many tokens.
    pub fn tokens(&self) -> usize {
        self.choices.len() / self.per_token.max(1)
    }

    /// Positions in `choices` that name `expert`, in order.
    fn of_expert(&self, expert: u32) -> Vec<usize> {
        let named = self.choices.iter().enumerate().filter(|(_, choice)| choice.0 == expert);
        named.map(|(index, _)| index).collect()
    }
}

/// The gate's function in a feed-forward layer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Activation {
    /// x · sigmoid(x).
    Silu,
    /// The tanh form of gelu.
    GeluTanh,
}

/// One expert: `down(activation(gate x) ⊙ up x)`.
#[derive(Clone, Copy)]
#[expect(missing_docs, reason = "the usual names of the three weights")]
pub struct Expert<'a> {
    pub gate: &'a Matrix,
    pub up: &'a Matrix,
    pub down: &'a Matrix,
}

impl Cpu {
    /// Softmax over each row of `experts` logits, its `per_token` largest (the lower index first among equals), divided by
    /// their sum when `normalize`.
    pub fn route(&self, logits: &[f32], experts: usize, per_token: usize, normalize: bool) -> Routing {
        let mut weights = logits.to_vec();
        self.softmax(&mut weights, experts);
        let choices = weights
            .chunks_exact(experts)
            .flat_map(|row| choose(row, per_token, normalize));
        Routing::new(per_token, choices.collect())
    }

    /// `gate ← activation(gate) ⊙ up`.
    pub fn activate_mul(&self, activation: Activation, gate: &mut [f32], up: &[f32]) {
        match activation {
            Activation::Silu => self.silu_mul(gate, up),
            Activation::GeluTanh => self.gelu_tanh_mul(gate, up),
        }
    }

    /// Each token's weighted sum of its experts, in the order of its list: `out[n, width]` from `x[n, width]`.
    ///
    /// # Panics
    /// When a slice does not fit its shape or the routing names a missing expert.
    pub fn experts(
        &self,
        x: &[f32],
        routing: &Routing,
        experts: &[Expert<'_>],
        activation: Activation,
        out: &mut [f32],
    ) {
        assert_eq!(x.len(), out.len(), "experts keep the width");
        let width = x.len() / routing.tokens().max(1);
        let mut answers = vec![0.0; routing.choices.len() * width];
        for (index, expert) in experts.iter().enumerate() {
            let slots = routing.of_expert(index as u32);
            if slots.is_empty() {
                continue;
            }
            let rows = |slot: &usize| &x[slot / routing.per_token * width..(slot / routing.per_token + 1) * width];
            let gathered: Vec<f32> = slots.iter().flat_map(rows).copied().collect();
            let results = self.feed_forward(&gathered, slots.len(), *expert, activation);
            for (slot, result) in slots.iter().zip(results.chunks_exact(width)) {
                answers[slot * width..(slot + 1) * width].copy_from_slice(result);
            }
        }
        for (token, out) in out.chunks_exact_mut(width).enumerate() {
            out.fill(0.0);
            let first = token * routing.per_token * width;
            let answers = answers[first..].chunks_exact(width);
            for ((_, weight), answer) in routing.token(token).iter().zip(answers) {
                for (out, answer) in out.iter_mut().zip(answer) {
                    *out = weight.mul_add(*answer, *out);
                }
            }
        }
    }

    fn feed_forward(&self, x: &[f32], n: usize, expert: Expert<'_>, activation: Activation) -> Vec<f32> {
        let mut gate = vec![0.0; n * expert.gate.rows()];
        let mut up = vec![0.0; n * expert.up.rows()];
        self.matmul(x, n, &mut [(expert.gate, &mut gate), (expert.up, &mut up)]);
        self.activate_mul(activation, &mut gate, &up);
        let mut out = vec![0.0; n * expert.down.rows()];
        self.matmul(&gate, n, &mut [(expert.down, &mut out)]);
        out
    }
}

/// The `count` largest of a row of probabilities.
fn choose(row: &[f32], count: usize, normalize: bool) -> Vec<(u32, f32)> {
    let mut order: Vec<(u32, f32)> = (0..).zip(row.iter().copied()).collect();
    order.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    order.truncate(count);
    if normalize {
        let sum: f32 = order.iter().map(|choice| choice.1).sum();
        order.iter_mut().for_each(|choice| choice.1 /= sum);
    }
    order
}

#[cfg(test)]
mod tests;
