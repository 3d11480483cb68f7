//! The decoder: one ragged batch through all layers. Code per operation; what differs between models is in the table.
//!
//! ```text
//!  tokens ─▶ embedding ─▶ [norm, attention, +, norm, feed-forward, +] per layer ─▶ norm, head ─▶ logits
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

use cluster_kernels::{Attention, Cpu, Expert, KvStore, Matrix, RopeStyle, Rotations};

use crate::{
    classes::{Classes, Place},
    ragged::{Ragged, Rows},
    spec::{AttentionSpec, ExpertsSpec, FfnSpec, LayerSpec, ModelSpec},
    weights::{FfnWeights, Gated, LayerWeights, Linear, Weights},
};

/// A model's constants, shared by its instances.
pub(crate) struct Network {
    pub(crate) spec: ModelSpec,
    pub(crate) weights: Weights,
    /// The distinct kinds of rotation.
    pub(crate) angles: Vec<Angles>,
    /// What of this a layer uses.
    pub(crate) layers: Vec<LayerPlace>,
}

impl Network {
    pub(crate) fn new(spec: ModelSpec, weights: Weights, classes: &Classes) -> Self {
        let mut angles: Vec<Angles> = Vec::new();
        let places = spec.layers.iter().zip(&classes.places).map(|(layer, &kv)| {
            let own = Angles::of(&layer.attention, weights.rope_divisors.as_deref());
            let known = angles.iter().position(|angles| *angles == own);
            let index = known.unwrap_or(angles.len());
            if known.is_none() {
                angles.push(own);
            }
            LayerPlace { angles: index, kv }
        });
        Self {
            layers: places.collect(),
            spec,
            weights,
            angles,
        }
    }
}

impl Angles {
    fn of(attention: &AttentionSpec, divisors: Option<&[f32]>) -> Self {
        let rope = &attention.rope;
        let mut frequencies = rope.frequencies(attention.head_dim);
        if let Some(divisors) = divisors.filter(|_| rope.divisors) {
            for (frequency, divisor) in frequencies.iter_mut().zip(divisors) {
                *frequency /= divisor;
            }
        }
        Self {
            frequencies,
            magnitude: rope.magnitude(),
        }
    }
}

/// The angles of one kind of rotation.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Angles {
    pub(crate) frequencies: Vec<f32>,
    pub(crate) magnitude: f32,
}

/// Where a layer finds its angles and its keys and values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LayerPlace {
    pub(crate) angles: usize,
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
    attended: Vec<f32>,
    gate: Vec<f32>,
    up: Vec<f32>,
    /// What a part adds to the residual stream.
    branch: Vec<f32>,
}

/// One batch on its way through the layers.
pub(crate) struct Step<'a> {
    pub(crate) network: &'a Network,
    pub(crate) cpu: &'a Cpu,
    pub(crate) stores: &'a mut [KvStore],
    pub(crate) batch: &'a Ragged,
    pub(crate) scratch: &'a mut Scratch,
}

impl Step<'_> {
    /// Writes keys and values of all rows, and the logits `[wanted, vocabulary]` of the wanted rows.
    pub(crate) fn run(mut self, logits: &mut [f32]) {
        self.embed();
        let last = self.network.layers.len() - 1;
        let turns = self.rotations(&self.batch.positions);
        for layer in 0..last {
            self.layer(layer, Rows::All, &turns, &turns);
        }
        if self.batch.len(Rows::Wanted) == self.batch.len(Rows::All) {
            self.layer(last, Rows::All, &turns, &turns);
        } else {
            let wanted = self.rotations(&self.batch.wanted_positions());
            self.layer(last, Rows::Wanted, &turns, &wanted);
        }
        self.head(logits);
    }

    fn embed(&mut self) {
        let (spec, embedding) = (&self.network.spec, &self.network.weights.embedding);
        let hidden = &mut self.scratch.hidden;
        hidden.resize(self.batch.tokens.len() * spec.hidden, 0.0);
        for (row, token) in hidden.chunks_exact_mut(spec.hidden).zip(&self.batch.tokens) {
            embedding.row_into(*token as usize, row);
        }
        if spec.embedding_scale != 1.0 {
            hidden.iter_mut().for_each(|value| *value *= spec.embedding_scale);
        }
    }

    /// Every kind of rotation at these positions.
    fn rotations(&self, positions: &[u32]) -> Vec<Rotations> {
        let rotations = |angles: &Angles| Rotations::new(positions, &angles.frequencies, angles.magnitude);
        self.network.angles.iter().map(rotations).collect()
    }

    /// One layer: keys and values for all rows, the rest for `rows`, which are those left in the residual stream.
    fn layer(&mut self, index: usize, rows: Rows, key_turns: &[Rotations], query_turns: &[Rotations]) {
        let (spec, weights) = (&self.network.spec.layers[index], &self.network.weights.layers[index]);
        let place = self.network.layers[index];
        let (key_turns, query_turns) = (&key_turns[place.angles], &query_turns[place.angles]);
        self.norm(&weights.attention_norm);
        self.project(rows, weights);
        self.turn(&spec.attention, weights, key_turns, query_turns);
        self.store(place.kv);
        if self.scratch.hidden.is_empty() {
            return;
        }
        self.attend(&spec.attention, place.kv, rows);
        self.join_attention(weights);
        self.norm(&weights.ffn_norm);
        self.feed_forward(spec, weights);
        self.join_feed_forward(weights);
    }

    /// normed ← norm(hidden).
    fn norm(&mut self, weight: &[f32]) {
        let Scratch { hidden, normed, .. } = &mut *self.scratch;
        normed.resize(hidden.len(), 0.0);
        self.cpu
            .rms_norm(hidden, weight, self.network.spec.norm_epsilon, normed);
    }

    /// Queries, keys and values; together where all rows are needed, because they share their input.
    fn project(&mut self, rows: Rows, weights: &LayerWeights) {
        let LayerWeights { query, key, value, .. } = weights;
        let to = &mut *self.scratch;
        if rows == Rows::All {
            let outputs = &mut [(query, &mut to.query), (key, &mut to.key), (value, &mut to.value)];
            return linear(self.cpu, &to.normed, outputs);
        }
        linear(self.cpu, &to.normed, &mut [(key, &mut to.key), (value, &mut to.value)]);
        self.keep_wanted();
        let to = &mut *self.scratch;
        linear(self.cpu, &to.normed, &mut [(query, &mut to.query)]);
    }

    /// Leaves only the wanted rows in the residual stream and its norm.
    fn keep_wanted(&mut self) {
        let width = self.network.spec.hidden;
        for buffer in [&mut self.scratch.hidden, &mut self.scratch.normed] {
            let mut kept = 0;
            for rows in self.batch.wanted() {
                let values = rows.start * width..rows.end * width;
                let len = values.len();
                buffer.copy_within(values, kept);
                kept += len;
            }
            buffer.truncate(kept);
        }
    }

    /// Norms the heads where the model does, and rotates them to their positions.
    fn turn(&mut self, spec: &AttentionSpec, weights: &LayerWeights, keys: &Rotations, queries: &Rotations) {
        let Scratch { query, key, .. } = &mut *self.scratch;
        if let Some((query_norm, key_norm)) = &weights.head_norms {
            let epsilon = self.network.spec.norm_epsilon;
            self.cpu.rms_norm_in_place(query, query_norm, epsilon);
            self.cpu.rms_norm_in_place(key, key_norm, epsilon);
        }
        self.cpu.rope(query, spec.head_dim, queries, RopeStyle::HalfSplit);
        self.cpu.rope(key, spec.head_dim, keys, RopeStyle::HalfSplit);
    }

    /// Writes keys and values to the sequences' blocks.
    fn store(&mut self, place: Place) {
        let Scratch { key, value, .. } = &*self.scratch;
        let width = key.len() / self.batch.tokens.len();
        for (blocks, start, rows) in self.batch.tables(place.class) {
            let values = rows.start * width..rows.end * width;
            self.stores[place.class].write(place.layer, blocks, start, &key[values.clone()], &value[values]);
        }
    }

    fn attend(&mut self, spec: &AttentionSpec, place: Place, rows: Rows) {
        let Scratch { query, attended, .. } = &mut *self.scratch;
        attended.resize(query.len(), 0.0);
        let call = Attention {
            layer: place.layer,
            heads: spec.heads,
            scale: spec.scale,
            window: spec.window,
            sequences: &self.batch.sequences(place.class, rows),
        };
        self.cpu.attention(&self.stores[place.class], &call, query, attended);
    }

    fn join_attention(&mut self, weights: &LayerWeights) {
        let Scratch { attended, branch, .. } = &mut *self.scratch;
        matmul(self.cpu, attended, &mut [(&weights.output, branch)]);
        self.join(weights.post_norms.as_ref().map(|norms| &*norms.0));
    }

    /// branch ← ffn(normed).
    fn feed_forward(&mut self, spec: &LayerSpec, weights: &LayerWeights) {
        match (&weights.ffn, &spec.ffn) {
            (FfnWeights::Dense(gated), _) => self.dense(gated),
            (FfnWeights::Experts { router, experts }, FfnSpec::Experts(spec)) => self.experts(spec, router, experts),
            (FfnWeights::Experts { .. }, FfnSpec::Dense { .. }) => unreachable!("weights are loaded by the same table"),
        }
    }

    fn dense(&mut self, gated: &Gated) {
        let Scratch {
            normed,
            gate,
            up,
            branch,
            ..
        } = &mut *self.scratch;
        matmul(self.cpu, normed, &mut [(&gated.gate, gate), (&gated.up, up)]);
        self.cpu.activate_mul(self.network.spec.activation, gate, up);
        matmul(self.cpu, gate, &mut [(&gated.down, branch)]);
    }

    fn experts(&mut self, spec: &ExpertsSpec, router: &Matrix, experts: &[Gated]) {
        let Scratch {
            normed, gate, branch, ..
        } = &mut *self.scratch;
        matmul(self.cpu, normed, &mut [(router, gate)]);
        let routing = self.cpu.route(gate, spec.count, spec.active, spec.normalize);
        let experts: Vec<Expert<'_>> = experts.iter().map(Gated::as_expert).collect();
        branch.resize(normed.len(), 0.0);
        self.cpu
            .experts(normed, &routing, &experts, self.network.spec.activation, branch);
    }

    fn join_feed_forward(&mut self, weights: &LayerWeights) {
        self.join(weights.post_norms.as_ref().map(|norms| &*norms.1));
    }

    /// hidden ← hidden + post norm(branch).
    fn join(&mut self, post_norm: Option<&[f32]>) {
        let Scratch { hidden, branch, .. } = &mut *self.scratch;
        if let Some(weight) = post_norm {
            self.cpu
                .rms_norm_in_place(branch, weight, self.network.spec.norm_epsilon);
        }
        self.cpu.add_assign(hidden, branch);
    }

    /// The logits of the rows left in the residual stream.
    fn head(&mut self, logits: &mut [f32]) {
        let rows = self.batch.len(Rows::Wanted);
        if rows > 0 {
            self.norm(&self.network.weights.norm);
            let head = self.network.weights.head();
            self.cpu.matmul(&self.scratch.normed, rows, &mut [(head, logits)]);
        }
    }
}

/// Multiplies `x` with each matrix, into buffers that take the right length.
fn matmul(cpu: &Cpu, x: &[f32], outputs: &mut [(&Matrix, &mut Vec<f32>)]) {
    let Some((first, _)) = outputs.first() else {
        return;
    };
    let rows = x.len() / first.cols();
    let sized = outputs.iter_mut().map(|(matrix, out)| {
        out.resize(rows * matrix.rows(), 0.0);
        (*matrix, out.as_mut_slice())
    });
    let mut products: Vec<_> = sized.collect();
    if rows > 0 {
        cpu.matmul(x, rows, &mut products);
    }
}

/// As `matmul`, with biases.
fn linear(cpu: &Cpu, x: &[f32], outputs: &mut [(&Linear, &mut Vec<f32>)]) {
    let mut products: Vec<_> = outputs
        .iter_mut()
        .map(|(linear, out)| (&linear.matrix, &mut **out))
        .collect();
    matmul(cpu, x, &mut products);
    for (linear, out) in outputs {
        if let Some(bias) = &linear.bias {
            cpu.add_bias(out, bias);
        }
    }
}
