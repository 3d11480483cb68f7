//! The decoder: one ragged batch through all layers. Code per operation; what differs between models is in the table.
//!
//! ```text
//!  tokens ─▶ embedding ─▶ [norm, attention, join, norm, feed-forward, join] per layer ─▶ norm, head ─▶ logits
//!                               │ ▲
//!                               ▼ │ blocks
//!                              KvStore, one per class
//! ```
//! It knows rows, positions and block tables; it does not know which sequence a row belongs to. Rows meet only through the
//! blocks, and every kernel computes a row in the same order whatever surrounds it, so a row's bits do not depend on the
//! batch or on how its sequence was cut.
//!
//! In the last layer keys and values are written for all rows; queries and everything behind them are computed for the
//! wanted rows alone.
//!
//! Where a model is divided among ranks, each runs this code with its own heads, experts and widths, and `Group` completes
//! what has to be complete: the embedding, the output of attention, the output of the feed-forward part. In a batch divided
//! by tokens the residual stream holds only the rank's own rows, and attention is the part between gathering all rows and
//! adding up the own ones.

mod experts;
mod group;
mod products;

use cluster_kernels::{Attention, CollectiveError, Cpu, KvStore, RopeStyle, Rotations};

pub(crate) use group::Group;

use crate::{
    classes::{Classes, Place},
    ragged::{Ragged, Rows},
    shard::{Heads, Shard},
    spec::{AttentionSpec, LayerSpec, ModelSpec},
    weights::{FfnWeights, Gated, Join, LayerWeights, PostNorm, Weights},
};
use products::{linear, matmul};

/// A model's constants, or one rank's part of them, shared by instances.
pub(crate) struct Network {
    pub(crate) spec: ModelSpec,
    pub(crate) weights: Weights,
    /// Those of this rank; layers do not differ.
    pub(crate) heads: Heads,
    /// The distinct kinds of rotation.
    pub(crate) angles: Vec<Angles>,
    /// What of this a layer uses.
    pub(crate) layers: Vec<LayerPlace>,
}

impl Network {
    pub(crate) fn new(spec: ModelSpec, weights: Weights, classes: &Classes, shard: Shard) -> Self {
        let mut angles: Vec<Angles> = Vec::new();
        let places = spec.layers.iter().zip(&classes.places).map(|(layer, &kv)| {
            let own = Angles::of(&layer.attention, weights.rope_divisors.as_deref());
            let angles = own.map(|own| {
                let known = angles.iter().position(|angles| *angles == own);
                known.unwrap_or_else(|| {
                    angles.push(own);
                    angles.len() - 1
                })
            });
            LayerPlace { angles, kv }
        });
        Self {
            layers: places.collect(),
            heads: shard.heads(&spec.layers[0].attention),
            spec,
            weights,
            angles,
        }
    }
}

impl Angles {
    fn of(attention: &AttentionSpec, divisors: Option<&[f32]>) -> Option<Self> {
        let rope = attention.rope.as_ref()?;
        let mut frequencies = rope.frequencies(attention.head_dim);
        if let Some(divisors) = divisors.filter(|_| rope.divisors) {
            for (frequency, divisor) in frequencies.iter_mut().zip(divisors) {
                *frequency /= divisor;
            }
        }
        Some(Self {
            frequencies,
            magnitude: rope.magnitude(),
        })
    }
}

/// The angles of one kind of rotation.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Angles {
    pub(crate) frequencies: Vec<f32>,
    pub(crate) magnitude: f32,
}

/// Where a layer finds its angles, if it rotates, and its keys and values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LayerPlace {
    pub(crate) angles: Option<usize>,
    pub(crate) kv: Place,
}

/// Intermediate rows. Kept between steps, so that a step allocates nothing large once it has seen its largest batch.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// The residual stream.
    hidden: Vec<f32>,
    normed: Vec<f32>,
    query: Vec<f32>,
    key: Vec<f32>,
    value: Vec<f32>,
    output_gate: Vec<f32>,
    attended: Vec<f32>,
    gate: Vec<f32>,
    up: Vec<f32>,
    /// What experts take and give.
    pooled: Vec<f32>,
    /// A row for every expert of every token.
    answers: Vec<f32>,
    /// What a part adds to the residual stream.
    branch: Vec<f32>,
}

/// One batch on its way through the layers.
pub(crate) struct Step<'a> {
    pub(crate) network: &'a Network,
    pub(crate) cpu: &'a Cpu,
    /// One for each class; none where the rank has no heads.
    pub(crate) stores: &'a mut [Option<KvStore>],
    pub(crate) batch: &'a Ragged,
    pub(crate) scratch: &'a mut Scratch,
    pub(crate) group: Group<'a>,
}

impl Step<'_> {
    /// Writes keys and values of all rows, and the logits `[wanted, part of the vocabulary]` of the wanted rows.
    pub(crate) fn run(mut self, logits: &mut [f32]) -> Result<(), CollectiveError> {
        self.embed()?;
        let last = self.network.layers.len() - 1;
        let turns = self.rotations(&self.batch.positions);
        for layer in 0..last {
            self.layer(layer, Rows::All, &turns, &turns)?;
        }
        if self.group.by_tokens() || self.batch.len(Rows::Wanted) == self.batch.len(Rows::All) {
            self.layer(last, Rows::All, &turns, &turns)?;
        } else {
            let wanted = self.rotations(&self.batch.wanted_positions());
            self.layer(last, Rows::Wanted, &turns, &wanted)?;
        }
        self.head(logits)
    }

    /// hidden ← the embeddings of the rank's own rows.
    fn embed(&mut self) -> Result<(), CollectiveError> {
        let (spec, weights) = (&self.network.spec, &self.network.weights);
        let hidden = &mut self.scratch.hidden;
        hidden.clear();
        hidden.resize(self.batch.tokens.len() * spec.hidden, 0.0);
        for (row, token) in hidden.chunks_exact_mut(spec.hidden).zip(&self.batch.tokens) {
            let token = *token as usize;
            if weights.tokens.contains(&token) {
                weights.embedding.row_into(token - weights.tokens.start, row);
            }
        }
        self.group.sum(hidden)?;
        if spec.embedding_scale != 1.0 {
            self.cpu.scale(hidden, spec.embedding_scale);
        }
        if spec.embedding_norm {
            let ones = vec![1.0; spec.hidden];
            self.cpu.rms_norm_in_place(hidden, &ones, spec.norm_epsilon);
        }
        self.batch.put_embedded(spec.hidden, hidden);
        self.group.keep_own(hidden, spec.hidden);
        Ok(())
    }

    /// Every kind of rotation at these positions.
    fn rotations(&self, positions: &[u32]) -> Vec<Rotations> {
        let rotations = |angles: &Angles| Rotations::new(positions, &angles.frequencies, angles.magnitude);
        self.network.angles.iter().map(rotations).collect()
    }

    /// One layer: keys and values for all rows, the rest for `rows`, which are those left in the residual stream.
    fn layer(
        &mut self,
        index: usize,
        rows: Rows,
        key_turns: &[Rotations],
        query_turns: &[Rotations],
    ) -> Result<(), CollectiveError> {
        let (spec, weights) = (&self.network.spec.layers[index], &self.network.weights.layers[index]);
        let place = self.network.layers[index];
        self.norm(&weights.attention_norm);
        self.gather_rows()?;
        self.project(rows, weights);
        self.norm_heads(weights);
        if let Some(angles) = place.angles {
            self.turn(&spec.attention, &key_turns[angles], &query_turns[angles]);
        }
        self.store(place.kv);
        if self.batch.len(rows) == 0 {
            return Ok(());
        }
        self.attend(&spec.attention, place.kv, rows);
        self.output(&spec.attention, weights, rows);
        self.complete_branch()?;
        self.join(&weights.attention_join);
        self.norm(&weights.ffn_norm);
        self.feed_forward(spec, weights)?;
        self.join(&weights.ffn_join);
        Ok(())
    }

    /// normed ← norm(hidden).
    fn norm(&mut self, weight: &[f32]) {
        let Scratch { hidden, normed, .. } = &mut *self.scratch;
        normed.resize(hidden.len(), 0.0);
        self.cpu
            .rms_norm(hidden, weight, self.network.spec.norm_epsilon, normed);
    }

    /// normed ← all ranks' normed, where rows are divided.
    fn gather_rows(&mut self) -> Result<(), CollectiveError> {
        self.group
            .gather_rows(&mut self.scratch.normed, self.network.spec.hidden)
    }

    /// branch ← the sum of all ranks' branches, of the own rows where rows are divided.
    fn complete_branch(&mut self) -> Result<(), CollectiveError> {
        self.group.sum_rows(&mut self.scratch.branch, self.network.spec.hidden)
    }

    /// Queries, keys and values; together where all rows are needed, because they share their input.
    fn project(&mut self, rows: Rows, weights: &LayerWeights) {
        let LayerWeights { query, key, value, .. } = weights;
        let to = &mut *self.scratch;
        if rows == Rows::All {
            let outputs = &mut [(query, &mut to.query), (key, &mut to.key), (value, &mut to.value)];
            linear(self.cpu, &to.normed, outputs);
        } else {
            linear(self.cpu, &to.normed, &mut [(key, &mut to.key), (value, &mut to.value)]);
            self.keep_wanted();
            let to = &mut *self.scratch;
            linear(self.cpu, &to.normed, &mut [(query, &mut to.query)]);
        }
        let to = &mut *self.scratch;
        if let Some(gate) = &weights.output_gate {
            matmul(self.cpu, &to.normed, &mut [(gate, &mut to.output_gate)]);
        }
    }

    /// Leaves only the wanted rows in the residual stream and its norm.
    fn keep_wanted(&mut self) {
        let width = self.network.spec.hidden;
        self.batch.keep_wanted(width, &mut self.scratch.hidden);
        self.batch.keep_wanted(width, &mut self.scratch.normed);
    }

    /// Norms the query and key heads where the model does.
    fn norm_heads(&mut self, weights: &LayerWeights) {
        let Scratch { query, key, .. } = &mut *self.scratch;
        if let Some(norms) = &weights.head_norms {
            let epsilon = self.network.spec.norm_epsilon;
            self.cpu.rms_norm_in_place(query, &norms.query, epsilon);
            self.cpu.rms_norm_in_place(key, &norms.key, epsilon);
        }
    }

    /// Rotates the query and key heads to their positions.
    fn turn(&mut self, spec: &AttentionSpec, keys: &Rotations, queries: &Rotations) {
        let Scratch { query, key, .. } = &mut *self.scratch;
        self.cpu.rope(query, spec.head_dim, queries, RopeStyle::HalfSplit);
        self.cpu.rope(key, spec.head_dim, keys, RopeStyle::HalfSplit);
    }

    /// Writes keys and values to the sequences' blocks.
    fn store(&mut self, place: Place) {
        let Scratch { key, value, .. } = &*self.scratch;
        let Some(store) = &mut self.stores[place.class] else {
            return;
        };
        let width = key.len() / self.batch.tokens.len();
        for (blocks, start, rows) in self.batch.tables(place.class) {
            let values = rows.start * width..rows.end * width;
            store.write(place.layer, blocks, start, &key[values.clone()], &value[values]);
        }
    }

    fn attend(&mut self, spec: &AttentionSpec, place: Place, rows: Rows) {
        let Scratch { query, attended, .. } = &mut *self.scratch;
        attended.resize(query.len(), 0.0);
        let Some(store) = &self.stores[place.class] else {
            return;
        };
        let call = Attention {
            layer: place.layer,
            heads: self.network.heads.query.len(),
            scale: spec.scale,
            window: spec.window,
            sequences: &self.batch.sequences(place.class, rows),
        };
        self.cpu.attention(store, &call, query, attended);
    }

    /// branch ← the heads' results, normed and gated where the model does, projected back to the stream's width.
    fn output(&mut self, spec: &AttentionSpec, weights: &LayerWeights, rows: Rows) {
        let Scratch {
            attended,
            output_gate,
            branch,
            ..
        } = &mut *self.scratch;
        if spec.output_norm
            && let Some(weight) = &weights.output_norm
        {
            self.cpu
                .rms_norm_in_place(attended, weight, self.network.spec.norm_epsilon);
        }
        if weights.output_gate.is_some() {
            self.cpu.sigmoid_mul(attended, output_gate);
        }
        products::matmul_rows(
            self.cpu,
            attended,
            self.batch.len(rows),
            &mut [(&weights.output, branch)],
        );
    }

    /// branch ← ffn(normed), complete.
    fn feed_forward(&mut self, spec: &LayerSpec, weights: &LayerWeights) -> Result<(), CollectiveError> {
        match &weights.ffn {
            FfnWeights::Dense(gated) => self.dense(gated),
            FfnWeights::Experts(experts) => self.experts(&spec.ffn, experts),
        }
    }

    fn dense(&mut self, gated: &Gated) -> Result<(), CollectiveError> {
        self.gather_rows()?;
        let rows = self.scratch.normed.len() / self.network.spec.hidden;
        let Scratch {
            normed,
            gate,
            up,
            branch,
            ..
        } = &mut *self.scratch;
        matmul(self.cpu, normed, &mut [(&gated.gate, gate), (&gated.up, up)]);
        self.cpu.activate_mul(self.network.spec.activation, gate, up);
        products::matmul_rows(self.cpu, gate, rows, &mut [(&gated.down, branch)]);
        self.complete_branch()
    }

    /// hidden ← hidden joined with branch.
    fn join(&mut self, join: &Join) {
        let Scratch { hidden, branch, .. } = &mut *self.scratch;
        if let Some(norm) = &join.norm {
            post_norm(self.cpu, norm, self.network.spec.post_norm_epsilon, branch);
        }
        match &join.blend {
            None => self.cpu.add_assign(hidden, branch),
            Some(blend) => self.cpu.blend(hidden, branch, &blend.keep, &blend.take),
        }
    }

    /// The logits of the wanted rows: those left in the residual stream, unless it is divided by tokens.
    fn head(&mut self, logits: &mut [f32]) -> Result<(), CollectiveError> {
        let (network, rows) = (self.network, self.batch.len(Rows::Wanted));
        if rows == 0 {
            return Ok(());
        }
        self.norm(&network.weights.norm);
        if self.group.by_tokens() {
            self.gather_rows()?;
            self.batch.keep_wanted(network.spec.hidden, &mut self.scratch.normed);
        }
        let head = network.weights.head();
        if head.rows() > 0 {
            self.cpu.matmul(&self.scratch.normed, rows, &mut [(head, &mut *logits)]);
        }
        match network.spec.logit_cap {
            Some(cap) => self.cpu.soft_cap(logits, network.spec.logit_scale, cap),
            None if network.spec.logit_scale != 1.0 => self.cpu.scale(logits, network.spec.logit_scale),
            None => {}
        }
        Ok(())
    }
}

/// Norms rows as `norm` says.
fn post_norm(cpu: &Cpu, norm: &PostNorm, epsilon: f32, rows: &mut [f32]) {
    if let Some(factors) = &norm.factors {
        cpu.mul_rows(rows, factors);
    }
    cpu.rms_norm_in_place(rows, &norm.weight, epsilon);
}

#[cfg(test)]
mod tests;
