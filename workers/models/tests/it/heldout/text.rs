//! The language model as its description reads: one position after the other, in double precision, nothing kept in any
//! clever way. Shares no code with what it judges.

use super::checkpoint::Checkpoint;

/// What the description says once every default is in its place.
#[derive(Clone)]
pub(crate) struct Shape {
    /// What names of tensors begin with.
    pub(crate) prefix: &'static str,
    pub(crate) vocabulary: usize,
    pub(crate) hidden: usize,
    pub(crate) heads: usize,
    pub(crate) kv_heads: usize,
    pub(crate) head_dim: usize,
    /// Of each layer: whether it is local, whether it is dense, its base of rotation (0: none).
    pub(crate) layers: Vec<(bool, bool, f64)>,
    pub(crate) window: usize,
    pub(crate) dense_inner: usize,
    pub(crate) pooled: usize,
    pub(crate) inner: usize,
    pub(crate) experts: usize,
    pub(crate) chosen: usize,
    pub(crate) tied: bool,
    pub(crate) eps: f64,
    pub(crate) post_eps: f64,
    pub(crate) qk_scale: f64,
    pub(crate) multiplier: f64,
    pub(crate) cap: Option<f64>,
    pub(crate) temperature: f64,
    pub(crate) routed_scale: f64,
}

/// The logits of every position. `media` are rows that take the place of embeddings, by position.
pub(crate) fn logits(model: &Checkpoint, shape: &Shape, tokens: &[u32], media: &[(usize, Vec<f64>)]) -> Vec<Vec<f64>> {
    let name = |rest: &str| format!("{}{rest}", shape.prefix);
    let mut stream: Vec<Vec<f64>> = Vec::new();
    for (position, token) in tokens.iter().enumerate() {
        let table = model.tensor(&name("embed_tokens.weight"));
        let start = *token as usize * shape.hidden;
        let row = norm(&table.values[start..start + shape.hidden], shape.eps);
        let replaced = media.iter().find(|(place, _)| *place == position);
        stream.push(replaced.map_or(row, |(_, row)| row.clone()));
    }
    for layer in 0..shape.layers.len() {
        let of = |part: &str| name(&format!("layers.{layer}.{part}"));
        let weights = |part: &str| &model.tensor(&of(part)).values;
        let normed = |rows: &[Vec<f64>], part: &str| -> Vec<Vec<f64>> {
            let rows = rows.iter();
            rows.map(|row| offset(&norm(row, shape.eps), weights(part))).collect()
        };
        let attended = attention(model, shape, layer, &normed(&stream, "input_layernorm.weight"));
        for (row, branch) in stream.iter_mut().zip(&attended) {
            let gate = weights("post_attention_residual_gate.gate");
            blend(row, &norm(branch, shape.post_eps), gate, shape.temperature);
        }
        for (row, input) in stream.clone().iter().enumerate() {
            let input = offset(&norm(input, shape.eps), weights("pre_feedforward_layernorm.weight"));
            let (_, dense, _) = shape.layers[layer];
            let branch = if dense {
                feed_forward(model, shape, &of("mlp."), &input)
            } else {
                experts(model, shape, &of("mlp."), &input)
            };
            let scaled = offset(&branch, weights("post_feedforward_layernorm.weight"));
            let gate = weights("post_feedforward_residual_gate.gate");
            blend(
                &mut stream[row],
                &norm(&scaled, shape.post_eps),
                gate,
                shape.temperature,
            );
        }
    }
    let head = model.tensor(&if shape.tied {
        name("embed_tokens.weight")
    } else {
        "lm_head.weight".into()
    });
    let gains = &model.tensor(&name("norm.weight")).values;
    let mut all = Vec::new();
    for row in &stream {
        let normed: Vec<f64> = norm(row, shape.eps).iter().zip(gains).map(|(x, w)| x * w).collect();
        let scaled = head.product(&normed).into_iter().map(|z| z * shape.multiplier);
        all.push(
            scaled
                .map(|z| shape.cap.map_or(z, |cap| cap * (z / cap).tanh()))
                .collect(),
        );
    }
    all
}

fn attention(model: &Checkpoint, shape: &Shape, layer: usize, rows: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let weight = |part: &str| model.tensor(&format!("{}layers.{layer}.self_attn.{part}_proj.weight", shape.prefix));
    let (local, _, theta) = shape.layers[layer];
    let d = shape.head_dim;
    let heads = |row: &[f64], position: usize| -> Vec<Vec<f64>> {
        let heads = row.chunks_exact(d);
        heads
            .map(|head| turned(&norm(head, shape.eps), position, theta))
            .collect()
    };
    let (mut keys, mut values) = (Vec::new(), Vec::new());
    for (position, row) in rows.iter().enumerate() {
        keys.push(heads(&weight("k").product(row), position));
        values.push(weight("v").product(row));
    }
    let mut out = Vec::new();
    for (position, row) in rows.iter().enumerate() {
        let queries = heads(&weight("q").product(row), position);
        let gate = weight("gate").product(row);
        let mut joined = Vec::new();
        for (head, query) in queries.iter().enumerate() {
            let kv = head / (shape.heads / shape.kv_heads);
            let seen: Vec<usize> = (0..=position)
                .filter(|key| !local || position - key < shape.window)
                .collect();
            let scale = shape.qk_scale / (d as f64).sqrt();
            let score = |key: &usize| dot(query, &keys[*key][kv]) * scale;
            let scores: Vec<f64> = seen.iter().map(score).collect();
            let highest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let exps: Vec<f64> = scores.iter().map(|score| (score - highest).exp()).collect();
            let total: f64 = exps.iter().sum();
            let mut mixed = vec![0.0; d];
            for (key, exp) in seen.iter().zip(&exps) {
                for channel in 0..d {
                    mixed[channel] += exp / total * values[*key][kv * d + channel];
                }
            }
            joined.extend(norm(&mixed, shape.eps));
        }
        let gated: Vec<f64> = joined.iter().zip(&gate).map(|(o, g)| o * sigmoid(*g)).collect();
        out.push(weight("o").product(&gated));
    }
    out
}

/// Pairs of channels half a head apart, turned by their angle, which the description wants in single precision.
fn turned(head: &[f64], position: usize, theta: f64) -> Vec<f64> {
    if theta == 0.0 {
        return head.to_vec();
    }
    let half = head.len() / 2;
    let mut out = head.to_vec();
    for j in 0..half {
        let frequency = theta.powf(-2.0 * j as f64 / head.len() as f64) as f32;
        let angle = f64::from(position as f32 * frequency);
        out[j] = head[j] * angle.cos() - head[j + half] * angle.sin();
        out[j + half] = head[j + half] * angle.cos() + head[j] * angle.sin();
    }
    out
}

fn feed_forward(model: &Checkpoint, shape: &Shape, at: &str, x: &[f64]) -> Vec<f64> {
    let weight = |part: &str| model.tensor(&format!("{at}{part}_proj.weight"));
    let (gate, up) = (weight("gate").product(x), weight("up").product(x));
    let inner: Vec<f64> = gate.iter().zip(&up).map(|(g, u)| silu(*g) * u).collect();
    assert_eq!(inner.len(), shape.dense_inner);
    weight("down").product(&inner)
}

fn experts(model: &Checkpoint, shape: &Shape, at: &str, x: &[f64]) -> Vec<f64> {
    let tensor = |part: &str| model.tensor(&format!("{at}{part}"));
    let scores: Vec<f64> = tensor("gate.weight")
        .product(x)
        .iter()
        .map(|l| sigmoid(l * shape.multiplier))
        .collect();
    let bias = &tensor("gate.e_score_correction_bias").values;
    let mut order: Vec<usize> = (0..shape.experts).collect();
    order.sort_by(|a, b| (scores[*b] + bias[*b]).total_cmp(&(scores[*a] + bias[*a])));
    let chosen = &order[..shape.chosen];
    let total: f64 = chosen.iter().map(|e| scores[*e]).sum::<f64>() + 1e-15;

    let pooled = tensor("pre_expert_proj.weight").product(x);
    let h = offset(&norm(&pooled, shape.eps), &tensor("pre_expert_norm.weight").values);
    let mut sum = vec![0.0; shape.pooled];
    for e in chosen {
        let both = tensor("experts.gate_up_proj");
        let gate = both.product_at(*e, 0, shape.inner, &h);
        let up = both.product_at(*e, shape.inner, shape.inner, &h);
        let inner: Vec<f64> = gate.iter().zip(&up).map(|(g, u)| silu(*g) * u).collect();
        let down = tensor("experts.down_proj").product_at(*e, 0, shape.pooled, &inner);
        let scaled = offset(&down, &tensor("experts.post_expert_norm.weight").values);
        let weight = scores[*e] / total * shape.routed_scale;
        for (sum, y) in sum.iter_mut().zip(norm(&scaled, shape.post_eps)) {
            *sum += weight * y;
        }
    }
    tensor("post_expert_proj.weight").product(&sum)
}

/// row ← α row + β branch.
fn blend(row: &mut [f64], branch: &[f64], gate: &[f64], temperature: f64) {
    for ((x, y), g) in row.iter_mut().zip(branch).zip(gate) {
        let u = g / temperature;
        let take = sigmoid(u);
        let keep = (sigmoid(-u) * (1.0 + take)).max(1e-3).sqrt();
        *x = keep * *x + take * y;
    }
}

pub(super) fn norm(x: &[f64], eps: f64) -> Vec<f64> {
    let mean = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
    x.iter().map(|x| x / (mean + eps).sqrt()).collect()
}

fn offset(x: &[f64], weights: &[f64]) -> Vec<f64> {
    x.iter().zip(weights).map(|(x, w)| x * (1.0 + w)).collect()
}

pub(super) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn silu(x: f64) -> f64 {
    x * sigmoid(x)
}
