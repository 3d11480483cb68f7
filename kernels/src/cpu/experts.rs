//! Mixtures of experts: which tokens go to which expert, one product per expert, and the weighted sums.

use std::ops::Range;

use crate::{Cpu, Matrix};

/// Keeps a token whose sigmoids are all zero from being divided by it.
const SMALLEST_SUM: f32 = 1e-15;

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

    /// How many choices each token has.
    pub fn per_token(&self) -> usize {
        self.per_token
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

    /// Sigmoid of each row of `bias.len()` logits; a bias is added for the choice of the `per_token` largest alone (the lower
    /// index first among equals), whose weights are divided by their sum and multiplied by `scale`.
    pub fn route_by_sigmoid(&self, logits: &[f32], bias: &[f32], per_token: usize, scale: f32) -> Routing {
        let mut weights = vec![1.0; logits.len()];
        self.sigmoid_mul(&mut weights, logits);
        let mut choices = Vec::with_capacity(logits.len() / bias.len() * per_token);
        for row in weights.chunks_exact(bias.len()) {
            let biased: Vec<f32> = row.iter().zip(bias).map(|(weight, bias)| weight + bias).collect();
            let chosen = choose(&biased, per_token, false);
            let chosen: Vec<(u32, f32)> = chosen.iter().map(|(index, _)| (*index, row[*index as usize])).collect();
            let sum: f32 = chosen.iter().map(|choice| choice.1).sum::<f32>() + SMALLEST_SUM;
            choices.extend(chosen.iter().map(|(index, weight)| (*index, weight / sum * scale)));
        }
        Routing::new(per_token, choices)
    }

    /// `gate ← activation(gate) ⊙ up`.
    pub fn activate_mul(&self, activation: Activation, gate: &mut [f32], up: &[f32]) {
        match activation {
            Activation::Silu => self.silu_mul(gate, up),
            Activation::GeluTanh => self.gelu_tanh_mul(gate, up),
        }
    }

    /// Each choice's expert applied to its token's row: `answers[choices, width]` from `x[tokens, width]`. Only the experts
    /// `first .. first + experts.len()` are here; the rows of others are zero.
    ///
    /// # Panics
    /// When `x` does not fit the routing.
    pub fn expert_rows(
        &self,
        x: &[f32],
        routing: &Routing,
        experts: &[Expert<'_>],
        first: usize,
        activation: Activation,
        answers: &mut Vec<f32>,
    ) {
        let width = x.len() / routing.tokens().max(1);
        assert_eq!(x.len(), width * routing.tokens(), "a row for every token");
        answers.clear();
        answers.resize(routing.choices.len() * width, 0.0);
        for (index, expert) in experts.iter().enumerate() {
            let slots = routing.of_expert((first + index) as u32);
            if slots.is_empty() || expert.gate.rows() == 0 {
                continue;
            }
            let rows = |slot: &usize| &x[slot / routing.per_token * width..(slot / routing.per_token + 1) * width];
            let gathered: Vec<f32> = slots.iter().flat_map(rows).copied().collect();
            let results = self.feed_forward(&gathered, slots.len(), *expert, activation);
            for (slot, result) in slots.iter().zip(results.chunks_exact(width)) {
                answers[slot * width..(slot + 1) * width].copy_from_slice(result);
            }
        }
    }

    /// Each token's weighted sum of `answers[choices, width]`, in the order of its list; only choices among `experts` count.
    ///
    /// # Panics
    /// When a slice does not fit the routing.
    pub fn combine(&self, routing: &Routing, answers: &[f32], experts: Range<usize>, out: &mut [f32]) {
        let tokens = routing.tokens().max(1);
        let width = out.len() / tokens;
        assert_eq!(answers.len(), width * routing.choices.len(), "a row for every choice");
        out.fill(0.0);
        for (choice, answer) in answers.chunks_exact(width.max(1)).enumerate() {
            let (expert, weight) = routing.choices[choice];
            if experts.contains(&(expert as usize)) {
                let token = choice / routing.per_token;
                for (out, answer) in out[token * width..(token + 1) * width].iter_mut().zip(answer) {
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
