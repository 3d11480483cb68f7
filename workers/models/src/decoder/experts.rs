//! Mixtures of experts: the router, the way to the experts' rows and back, and who computes which expert.
//!
//! ```text
//!  one rank                rows ─▶ experts ─▶ norm ─▶ weighted sum
//!  a slice of every one    rows ─▶ slices ─▶ add up every (token, expert) row ─▶ norm ─▶ weighted sum
//!  whole ones, all rows    rows ─▶ own experts ─▶ norm ─▶ weighted sum of own ─▶ add up
//!  whole ones, own rows    rows ─▶ to the ranks of their experts ─▶ own experts ─▶ norm ─▶ weighted sum ─▶ back ─▶ add up
//! ```
//! Sums over ranks are formed in the order of ranks, and sums within a rank in the order of a token's list, so the last two
//! give the same bits.

use std::ops::Range;

use cluster_kernels::{Collective, CollectiveError, Expert, Routing};

use super::{Scratch, Step, post_norm, products::matmul};
use crate::{
    shard::part,
    spec::{ExpertsSpec, FfnSpec, RoutingSpec},
    weights::{ExpertsWeights, Gated},
};

/// A token's expert that is on another rank.
const ELSEWHERE: f32 = -1.0;

impl Step<'_> {
    /// branch ← experts(normed), complete, for the rank's own rows.
    pub(super) fn experts(&mut self, spec: &FfnSpec, weights: &ExpertsWeights) -> Result<(), CollectiveError> {
        let FfnSpec::Experts(spec) = spec else {
            unreachable!("weights are loaded by the same table");
        };
        let routing = self.route(spec, weights);
        self.enter_pool(weights);
        let mut mixed = match self.group.collective() {
            Some(collective) if self.group.by_tokens() => self.dispatch(collective, spec, weights, &routing)?,
            Some(_) if weights.whole => {
                let mut mixed = self.mix(weights, &routing);
                self.group.sum(&mut mixed)?;
                mixed
            }
            _ => self.mix_slices(weights, &routing)?,
        };
        self.leave_pool(weights, &mut mixed);
        Ok(())
    }

    fn route(&mut self, spec: &ExpertsSpec, weights: &ExpertsWeights) -> Routing {
        let Scratch { normed, gate, .. } = &mut *self.scratch;
        matmul(self.cpu, normed, &mut [(&weights.router, gate)]);
        match (spec.routing, &weights.router_bias) {
            (RoutingSpec::Sigmoid { logit_scale, scale }, Some(bias)) => {
                self.cpu.scale(gate, logit_scale);
                self.cpu.route_by_sigmoid(gate, bias, spec.active, scale)
            }
            (RoutingSpec::Sigmoid { .. }, None) => unreachable!("weights are loaded by the same table"),
            (RoutingSpec::Softmax { normalize }, _) => self.cpu.route(gate, spec.count, spec.active, normalize),
        }
    }

    /// pooled ← what experts take.
    fn enter_pool(&mut self, weights: &ExpertsWeights) {
        let Scratch { normed, pooled, .. } = &mut *self.scratch;
        match &weights.pool {
            None => pooled.clone_from(normed),
            Some(pool) => {
                matmul(self.cpu, normed, &mut [(&pool.into, pooled)]);
                self.cpu
                    .rms_norm_in_place(pooled, &pool.norm, self.network.spec.norm_epsilon);
            }
        }
    }

    /// branch ← what experts gave, in the stream's width.
    fn leave_pool(&mut self, weights: &ExpertsWeights, mixed: &mut Vec<f32>) {
        let branch = &mut self.scratch.branch;
        match &weights.pool {
            None => std::mem::swap(branch, mixed),
            Some(pool) => matmul(self.cpu, mixed, &mut [(&pool.back, branch)]),
        }
    }

    /// The weighted sums of the experts that are here.
    fn mix(&mut self, weights: &ExpertsWeights, routing: &Routing) -> Vec<f32> {
        self.answer(weights, routing);
        self.norm_answers(weights);
        self.weigh(routing, weights.here.clone())
    }

    /// The weighted sums of all experts, of which every rank has a slice.
    fn mix_slices(&mut self, weights: &ExpertsWeights, routing: &Routing) -> Result<Vec<f32>, CollectiveError> {
        self.answer(weights, routing);
        if weights.pool.is_some() {
            self.group.sum(&mut self.scratch.answers)?;
            self.norm_answers(weights);
            return Ok(self.weigh(routing, weights.here.clone()));
        }
        let mut mixed = self.weigh(routing, weights.here.clone());
        self.group.sum(&mut mixed)?;
        Ok(mixed)
    }

    /// answers ← every chosen expert's result.
    fn answer(&mut self, weights: &ExpertsWeights, routing: &Routing) {
        let experts: Vec<Expert<'_>> = weights.experts.iter().map(Gated::as_expert).collect();
        let (first, activation) = (weights.here.start, self.network.spec.activation);
        let Scratch { pooled, answers, .. } = &mut *self.scratch;
        self.cpu
            .expert_rows(pooled, routing, &experts, first, activation, answers);
    }

    fn norm_answers(&mut self, weights: &ExpertsWeights) {
        if let Some(pool) = &weights.pool {
            let epsilon = self.network.spec.post_norm_epsilon;
            post_norm(self.cpu, &pool.result_norm, epsilon, &mut self.scratch.answers);
        }
    }

    fn weigh(&self, routing: &Routing, experts: Range<usize>) -> Vec<f32> {
        let Scratch { pooled, answers, .. } = &*self.scratch;
        let mut mixed = vec![0.0; pooled.len()];
        self.cpu.combine(routing, answers, experts, &mut mixed);
        mixed
    }

    /// Sends the own rows to the ranks of their experts, answers what came from others, and adds up what comes back.
    fn dispatch(
        &mut self,
        collective: &dyn Collective,
        spec: &ExpertsSpec,
        weights: &ExpertsWeights,
        routing: &Routing,
    ) -> Result<Vec<f32>, CollectiveError> {
        let width = spec.row_width(self.network.spec.hidden);
        let ranks = collective.ranks();
        let own = self.scratch.pooled.clone();
        let asked: Vec<Vec<usize>> = (0..ranks)
            .map(|rank| tokens_for(routing, part(spec.count, ranks, rank)))
            .collect();
        let letters: Vec<Vec<f32>> = asked
            .iter()
            .enumerate()
            .map(|(rank, tokens)| write_letter(&own, width, routing, tokens, part(spec.count, ranks, rank)))
            .collect();
        let mut received = Vec::new();
        collective.all_to_all(&as_slices(&letters), &mut received)?;

        let mut answers = Vec::with_capacity(ranks);
        for letter in &received {
            let theirs = read_letter(letter, width, spec.active, &mut self.scratch.pooled);
            answers.push(self.mix(weights, &theirs));
        }
        collective.all_to_all(&as_slices(&answers), &mut received)?;

        let mut mixed = vec![0.0; own.len()];
        for (tokens, answer) in asked.iter().zip(&received) {
            for (token, answer) in tokens.iter().zip(answer.chunks_exact(width)) {
                for (sum, part) in mixed[token * width..(token + 1) * width].iter_mut().zip(answer) {
                    *sum += part;
                }
            }
        }
        Ok(mixed)
    }
}

/// The tokens that go to one of `experts`.
fn tokens_for(routing: &Routing, experts: Range<usize>) -> Vec<usize> {
    let goes = |token: &usize| {
        let choices = routing.token(*token).iter();
        choices.clone().any(|choice| experts.contains(&(choice.0 as usize)))
    };
    (0..routing.tokens()).filter(goes).collect()
}

/// For each token its row, then for each of its choices the expert and its weight. Numbers of experts are small enough to
/// be exact.
fn write_letter(rows: &[f32], width: usize, routing: &Routing, tokens: &[usize], experts: Range<usize>) -> Vec<f32> {
    let mut letter = Vec::with_capacity(tokens.len() * (width + 2 * routing.per_token()));
    for token in tokens {
        letter.extend_from_slice(&rows[token * width..(token + 1) * width]);
        for (expert, weight) in routing.token(*token) {
            let here = experts.contains(&(*expert as usize));
            letter.extend([if here { *expert as f32 } else { ELSEWHERE }, *weight]);
        }
    }
    letter
}

/// Takes the rows out of a letter, and gives the choices.
fn read_letter(letter: &[f32], width: usize, per_token: usize, rows: &mut Vec<f32>) -> Routing {
    rows.clear();
    let mut choices = Vec::new();
    for token in letter.chunks_exact(width + 2 * per_token) {
        let (row, chosen) = token.split_at(width);
        rows.extend_from_slice(row);
        let choice = |[expert, weight]: &[f32; 2]| {
            if *expert == ELSEWHERE {
                (u32::MAX, 0.0)
            } else {
                (*expert as u32, *weight)
            }
        };
        choices.extend(chosen.as_chunks::<2>().0.iter().map(choice));
    }
    Routing::new(per_token, choices)
}

fn as_slices(parts: &[Vec<f32>]) -> Vec<&[f32]> {
    parts.iter().map(Vec::as_slice).collect()
}
