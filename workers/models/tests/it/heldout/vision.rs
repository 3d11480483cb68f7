//! The vision tower as its description reads, for frames that have their target size already. Shares no code with what it
//! judges.

use super::{
    checkpoint::Checkpoint,
    text::{dot, norm},
};

/// What the description says once every default is in its place.
#[derive(Clone)]
pub(crate) struct Shape {
    pub(crate) width: usize,
    pub(crate) inner: usize,
    pub(crate) heads: usize,
    /// Of each layer: whether it looks at the whole clip.
    pub(crate) full: Vec<bool>,
    pub(crate) patch: usize,
    pub(crate) frames: usize,
    pub(crate) merge: usize,
    /// Height and width of the position table.
    pub(crate) table: [usize; 2],
    pub(crate) eps: f64,
    pub(crate) theta: f64,
    pub(crate) adapter: usize,
    pub(crate) text_width: usize,
    /// Of the last norm, which is the language model's.
    pub(crate) text_eps: f64,
}

/// Frames of one size, `[height, width, 3]` each.
pub(crate) struct Film {
    pub(crate) height: usize,
    pub(crate) width: usize,
    pub(crate) frames: Vec<Vec<u8>>,
}

const TOWER: &str = "model.vision_tower.";

/// The rows that are spliced.
pub(crate) fn embeds(model: &Checkpoint, shape: &Shape, film: &Film) -> Vec<Vec<f64>> {
    let (gh, gw) = (film.height / shape.patch, film.width / shape.patch);
    let clips = film.frames.len().div_ceil(shape.frames);
    let mut rows = Vec::new();
    for clip in 0..clips {
        let patches = patches(shape, film, clip);
        let mut stream: Vec<Vec<f64>> = Vec::new();
        for (k, patch) in patches.iter().enumerate() {
            let mut row = model
                .tensor(&format!("{TOWER}patch_embedder.patch_embedding.weight"))
                .product(patch);
            add(&mut row, &position(model, shape, k, gh, gw));
            stream.push(layer_norm(model, "ln_pre", shape.eps, &row));
        }
        for layer in 0..shape.full.len() {
            layer_of(model, shape, layer, [gh, gw], &mut stream);
        }
        let stream: Vec<Vec<f64>> = stream
            .iter()
            .map(|row| layer_norm(model, "ln_post", shape.eps, row))
            .collect();
        let m = shape.merge;
        for top in (0..gh).step_by(m) {
            for left in (0..gw).step_by(m) {
                let mut merged = vec![0.0; shape.width * m * m];
                for c in 0..shape.width {
                    for j in 0..m * m {
                        merged[c * m * m + j] = stream[(top + j / m) * gw + left + j % m][c];
                    }
                }
                rows.push(adapted(model, shape, &merged));
            }
        }
    }
    rows
}

/// `[frame, channel, row, column]` of every patch of a clip, row-major over the grid.
fn patches(shape: &Shape, film: &Film, clip: usize) -> Vec<Vec<f64>> {
    let p = shape.patch;
    let mut patches = Vec::new();
    for top in (0..film.height).step_by(p) {
        for left in (0..film.width).step_by(p) {
            let mut patch = Vec::new();
            for frame in 0..shape.frames {
                let frame = (clip * shape.frames + frame).min(film.frames.len() - 1);
                for channel in 0..3 {
                    for y in top..top + p {
                        for x in left..left + p {
                            let value = film.frames[frame][(y * film.width + x) * 3 + channel];
                            patch.push((f64::from(value) / 255.0 - 0.5) / 0.5);
                        }
                    }
                }
            }
            patches.push(patch);
        }
    }
    patches
}

/// Between four entries of the table; those outside count as zero.
fn position(model: &Checkpoint, shape: &Shape, k: usize, gh: usize, gw: usize) -> Vec<f64> {
    let table = model.tensor(&format!("{TOWER}patch_embedder.position_embedding_table.weight"));
    let [height, width] = shape.table;
    let (r, q) = (k / gh, k % gh);
    let y = (r as f64 + 0.5) * height as f64 / gw as f64 - 0.5;
    let x = (q as f64 + 0.5) * width as f64 / gh as f64 - 0.5;
    let mut sum = vec![0.0; shape.width];
    for (row, row_share) in [(y.floor(), 1.0 - (y - y.floor())), (y.floor() + 1.0, y - y.floor())] {
        for (col, col_share) in [(x.floor(), 1.0 - (x - x.floor())), (x.floor() + 1.0, x - x.floor())] {
            if row < 0.0 || row >= height as f64 || col < 0.0 || col >= width as f64 {
                continue;
            }
            let entry = (row as usize * width + col as usize) * shape.width;
            for (c, sum) in sum.iter_mut().enumerate() {
                *sum += row_share * col_share * table.values[entry + c];
            }
        }
    }
    sum
}

fn layer_of(model: &Checkpoint, shape: &Shape, layer: usize, [gh, gw]: [usize; 2], stream: &mut [Vec<f64>]) {
    let d = shape.width / shape.heads;
    let of = |part: &str| format!("layers.{layer}.{part}");
    let window = |k: usize| (k / gw / shape.table[0], k % gw / shape.table[1]);
    let (mut queries, mut keys, mut values) = (Vec::new(), Vec::new(), Vec::new());
    for (k, row) in stream.iter().enumerate() {
        let normed = layer_norm(model, &of("norm1"), shape.eps, row);
        let heads = |part: &str| -> Vec<Vec<f64>> {
            let all = linear(model, &format!("{TOWER}{}", of(part)), &normed);
            all.chunks_exact(d)
                .map(|head| turned(shape, head, k / gw, k % gw))
                .collect()
        };
        queries.push(heads("attn.q_proj"));
        keys.push(heads("attn.k_proj"));
        values.push(linear(model, &format!("{TOWER}{}", of("attn.v_proj")), &normed));
    }
    for k in 0..gh * gw {
        let seen: Vec<usize> = (0..gh * gw)
            .filter(|other| shape.full[layer] || window(*other) == window(k))
            .collect();
        let mut joined = vec![0.0; shape.width];
        for head in 0..shape.heads {
            let score = |other: &usize| (dot(&queries[k][head], &keys[*other][head]) * (d as f64).powf(-0.5)).exp();
            let exps: Vec<f64> = seen.iter().map(score).collect();
            let total: f64 = exps.iter().sum();
            for (other, exp) in seen.iter().zip(&exps) {
                for channel in head * d..(head + 1) * d {
                    joined[channel] += exp / total * values[*other][channel];
                }
            }
        }
        add(
            &mut stream[k],
            &linear(model, &format!("{TOWER}{}", of("attn.proj")), &joined),
        );
    }
    for row in stream.iter_mut() {
        let normed = layer_norm(model, &of("norm2"), shape.eps, row);
        let inner = linear(model, &format!("{TOWER}{}", of("mlp.fc1")), &normed);
        assert_eq!(inner.len(), shape.inner);
        let inner: Vec<f64> = inner.into_iter().map(gelu).collect();
        add(row, &linear(model, &format!("{TOWER}{}", of("mlp.fc2")), &inner));
    }
}

/// Half the angles are of the column, half of the row, both counted from one.
fn turned(shape: &Shape, head: &[f64], row: usize, column: usize) -> Vec<f64> {
    let half = head.len() / 2;
    let mut out = head.to_vec();
    for j in 0..half {
        let (place, axis_j) = if j < half / 2 { (column, j) } else { (row, j - half / 2) };
        let angle = (place + 1) as f64 * shape.theta.powf(-2.0 * axis_j as f64 / half as f64);
        out[j] = head[j] * angle.cos() - head[j + half] * angle.sin();
        out[j + half] = head[j + half] * angle.cos() + head[j] * angle.sin();
    }
    out
}

fn adapted(model: &Checkpoint, shape: &Shape, merged: &[f64]) -> Vec<f64> {
    let mut row = merged.to_vec();
    for fc in ["model.vision_adapter.fc1.weight", "model.vision_adapter.fc2.weight"] {
        row = model.tensor(fc).product(&row).into_iter().map(gelu).collect();
        assert_eq!(row.len(), shape.adapter);
    }
    let row = model.tensor("model.vision_projection.weight").product(&row);
    assert_eq!(row.len(), shape.text_width);
    norm(&row, shape.text_eps)
}

fn layer_norm(model: &Checkpoint, name: &str, eps: f64, x: &[f64]) -> Vec<f64> {
    let mean = x.iter().sum::<f64>() / x.len() as f64;
    let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / x.len() as f64;
    let weight = &model.tensor(&format!("{TOWER}{name}.weight")).values;
    let bias = &model.tensor(&format!("{TOWER}{name}.bias")).values;
    let of = |i: usize| (x[i] - mean) / (variance + eps).sqrt() * weight[i] + bias[i];
    (0..x.len()).map(of).collect()
}

/// x · wᵀ + bias.
pub(super) fn linear(model: &Checkpoint, name: &str, x: &[f64]) -> Vec<f64> {
    let mut out = model.tensor(&format!("{name}.weight")).product(x);
    add(&mut out, &model.tensor(&format!("{name}.bias")).values);
    out
}

pub(super) fn add(to: &mut [f64], other: &[f64]) {
    assert_eq!(to.len(), other.len());
    for (to, other) in to.iter_mut().zip(other) {
        *to += other;
    }
}

pub(super) fn gelu(x: f64) -> f64 {
    0.5 * x * (1.0 + erf(x * std::f64::consts::FRAC_1_SQRT_2))
}

/// By its power series, which is exact enough where erf differs from one.
fn erf(x: f64) -> f64 {
    if x.abs() > 5.0 {
        return x.signum();
    }
    let (mut term, mut sum) = (x, x);
    for n in 1..150 {
        let n = f64::from(n);
        term *= -x * x / n;
        sum += term / (2.0 * n + 1.0);
    }
    sum * 2.0 / std::f64::consts::PI.sqrt()
}
