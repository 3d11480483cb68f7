//! Causal attention over KV pages: scores, softmax, weighted sum, one query head at a time.

use crate::{Attention, KvStore, Sequence};

/// As [`crate::Cpu::attention`].
pub fn attention(kv: &KvStore, call: &Attention<'_>, queries: &[f32], out: &mut [f32]) {
    let shape = kv.shape();
    let (dim, width) = (shape.head_dim, call.heads * shape.head_dim);
    let group = call.heads / shape.kv_heads;
    let positions = call
        .sequences
        .iter()
        .flat_map(|sequence| (0..sequence.tokens).map(move |token| (sequence, token)));
    for ((sequence, token), (query, out)) in positions.zip(queries.chunks_exact(width).zip(out.chunks_exact_mut(width)))
    {
        for head in 0..call.heads {
            let span = head * dim..(head + 1) * dim;
            let position = sequence.start + token;
            one_head(
                kv,
                call,
                sequence,
                position,
                head / group,
                &query[span.clone()],
                &mut out[span],
            );
        }
    }
}

fn one_head(
    kv: &KvStore,
    call: &Attention<'_>,
    sequence: &Sequence<'_>,
    position: usize,
    kv_head: usize,
    query: &[f32],
    out: &mut [f32],
) {
    let first = call.window.map_or(0, |window| (position + 1).saturating_sub(window));
    let keys = first..position + 1;
    let scores: Vec<f64> = keys
        .clone()
        .map(|key| {
            let key = kv.key(call.layer, sequence.blocks, key, kv_head);
            let dot: f64 = query.iter().zip(&key).map(|(q, k)| f64::from(*q) * f64::from(*k)).sum();
            dot * f64::from(call.scale)
        })
        .collect();
    let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = scores.iter().map(|score| (score - max).exp()).collect();
    let sum: f64 = weights.iter().sum();
    let mut total = vec![0.0; out.len()];
    for (key, weight) in keys.zip(&weights) {
        let value = kv.value(call.layer, sequence.blocks, key, kv_head);
        for (total, value) in total.iter_mut().zip(&value) {
            *total += weight / sum * f64::from(*value);
        }
    }
    for (out, total) in out.iter_mut().zip(&total) {
        *out = *total as f32;
    }
}
