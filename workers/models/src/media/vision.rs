//! The vision tower: patches to merged tokens, and these to embeddings. One rank's part of it.
//!
//! ```text
//!  patches ─▶ patch embedding + positions ─▶ norm ─▶ [ norm, attention, norm, inner ] x layers ─▶ norm ─▶ 2x2 merge ─▶ adapter
//!                                                       heads split ▲      ▲ inner width split
//!                                                          all-reduce      all-reduce
//! ```
//! Pictures of a batch are rows of the same products and segments of the same attention, so that each is computed as if it
//! were alone, to the last bit. With several ranks each computes some heads and some of the inner width of every token; what
//! comes before and after the layers is not split, but each rank takes only its share of the tokens through the adapter.

use std::{ops::Range, sync::Arc};

use cluster_kernels::{Collective, CollectiveError, Cpu, DenseAttention, Matrix, RopeStyle, Rotations};

use super::{
    grid::Grid,
    patches::Patches,
    spec::{MediaSpec, Reach, VisionSpec},
    tensors::{Linear, Norm, Tensors, linear, product},
};
use crate::WeightsError;

/// What all ranks share.
pub(crate) struct Frame {
    spec: VisionSpec,
    patch: Matrix,
    positions: Vec<f32>,
    norm_before: Norm,
    norm_after: Norm,
    adapter: [Matrix; 3],
    /// Of the last norm.
    ones: Vec<f32>,
    epsilon: f32,
}

/// One rank's part of the layers.
pub(crate) struct Layers {
    heads: usize,
    layers: Vec<Layer>,
}

struct Layer {
    norm_attention: Norm,
    query: Linear,
    key: Linear,
    value: Linear,
    output: Linear,
    norm_inner: Norm,
    up: Linear,
    down: Linear,
}

impl Frame {
    pub(crate) fn load(tensors: &Tensors<'_>, spec: &VisionSpec, media: &MediaSpec) -> Result<Self, WeightsError> {
        let MediaSpec {
            adapter,
            width,
            epsilon,
            ..
        } = *media;
        let embedder = "model.vision_tower.patch_embedder";
        let entries = spec.table[0] * spec.table[1];
        Ok(Self {
            patch: tensors.matrix(
                &format!("{embedder}.patch_embedding.weight"),
                [spec.width, spec.patch_len()],
            )?,
            positions: tensors.numbers(
                &format!("{embedder}.position_embedding_table.weight"),
                &[entries, spec.width],
            )?,
            norm_before: tensors.norm("model.vision_tower.ln_pre", spec.width)?,
            norm_after: tensors.norm("model.vision_tower.ln_post", spec.width)?,
            adapter: [
                tensors.matrix("model.vision_adapter.fc1.weight", [adapter, spec.merged()])?,
                tensors.matrix("model.vision_adapter.fc2.weight", [adapter, adapter])?,
                tensors.matrix("model.vision_projection.weight", [width, adapter])?,
            ],
            ones: vec![1.0; width],
            epsilon,
            spec: spec.clone(),
        })
    }
}

impl Layers {
    /// The part of `rank`: as many heads and as much of the inner width as the others, or one more.
    pub(crate) fn load(
        tensors: &Tensors<'_>,
        spec: &VisionSpec,
        rank: usize,
        ranks: usize,
    ) -> Result<Self, WeightsError> {
        let heads = share(spec.heads, rank, ranks);
        let inner = share(spec.inner, rank, ranks);
        let columns = heads.start * spec.head_dim()..heads.end * spec.head_dim();
        let square = [spec.width, spec.width];
        let load = |layer: usize| {
            let at = |part: &str| format!("model.vision_tower.layers.{layer}.{part}");
            Ok(Layer {
                norm_attention: tensors.norm(&at("norm1"), spec.width)?,
                query: tensors.outputs(&at("attn.q_proj"), square, columns.clone())?,
                key: tensors.outputs(&at("attn.k_proj"), square, columns.clone())?,
                value: tensors.outputs(&at("attn.v_proj"), square, columns.clone())?,
                output: tensors.inputs(&at("attn.proj"), square, columns.clone())?,
                norm_inner: tensors.norm(&at("norm2"), spec.width)?,
                up: tensors.outputs(&at("mlp.fc1"), [spec.inner, spec.width], inner.clone())?,
                down: tensors.inputs(&at("mlp.fc2"), [spec.width, spec.inner], inner.clone())?,
            })
        };
        Ok(Self {
            heads: heads.len(),
            layers: (0..spec.layers.len()).map(load).collect::<Result<_, _>>()?,
        })
    }
}

/// The part of `count` that a rank has.
pub(crate) fn share(count: usize, rank: usize, ranks: usize) -> Range<usize> {
    count * rank / ranks..count * (rank + 1) / ranks
}

/// One rank at work.
pub(crate) struct Vision {
    pub(crate) frame: Arc<Frame>,
    pub(crate) layers: Arc<Layers>,
    /// None: it is alone.
    pub(crate) others: Option<Box<dyn Collective>>,
}

/// What of a batch all layers need.
struct Places {
    rotations: Rotations,
    windows: Vec<usize>,
    clips: Vec<usize>,
    /// Patches in the order of windows.
    order: Vec<usize>,
}

impl Vision {
    /// This rank's share of the embeddings of all pictures.
    pub(crate) fn run(&self, cpu: &Cpu, patches: &Patches) -> Result<Vec<f32>, CollectiveError> {
        let embedded = self.embed(cpu, patches);
        let merged = self.tower(cpu, embedded, &patches.grids)?;
        let width = self.frame.spec.merged();
        let (rank, ranks) = self
            .others
            .as_ref()
            .map_or((0, 1), |others| (others.rank(), others.ranks()));
        let tokens = share(merged.len() / width, rank, ranks);
        Ok(self.adapt(cpu, &merged[tokens.start * width..tokens.end * width]))
    }

    /// Patches and their positions.
    pub(crate) fn embed(&self, cpu: &Cpu, patches: &Patches) -> Vec<f32> {
        let Frame {
            spec, patch, positions, ..
        } = &*self.frame;
        let mut embedded = product(cpu, &patches.numbers, patch);
        let mut rows = embedded.chunks_exact_mut(spec.width);
        for grid in &patches.grids {
            for (index, row) in (0..grid.patches()).zip(&mut rows) {
                for share in grid.shares(index % grid.clip(), spec.table) {
                    let entry = &positions[share.entry * spec.width..][..spec.width];
                    for (number, position) in row.iter_mut().zip(entry) {
                        *number += position * share.weight;
                    }
                }
            }
        }
        embedded
    }

    /// Embedded patches to merged tokens.
    pub(crate) fn tower(&self, cpu: &Cpu, mut stream: Vec<f32>, grids: &[Grid]) -> Result<Vec<f32>, CollectiveError> {
        let Frame {
            spec,
            norm_before,
            norm_after,
            ..
        } = &*self.frame;
        let places = Places::new(spec, grids);
        let normed = |stream: &mut Vec<f32>, norm: &Norm| {
            cpu.layer_norm_in_place(stream, &norm.weight, &norm.bias, spec.epsilon);
        };
        normed(&mut stream, norm_before);
        let mut stream = gathered(&stream, &places.order, spec.width);
        for (layer, reach) in self.layers.layers.iter().zip(&spec.layers) {
            let mut attended = stream.clone();
            normed(&mut attended, &layer.norm_attention);
            let attended = self.attend(cpu, layer, &attended, &places, *reach);
            self.join(cpu, &attended, &layer.output, &mut stream)?;
            let mut inner = stream.clone();
            normed(&mut inner, &layer.norm_inner);
            let mut inner = linear(cpu, &inner, &layer.up);
            cpu.gelu(&mut inner);
            self.join(cpu, &inner, &layer.down, &mut stream)?;
        }
        let mut stream = scattered(&stream, &places.order, spec.width);
        normed(&mut stream, norm_after);
        Ok(merged(spec, &stream, grids))
    }

    /// The results of this rank's heads.
    fn attend(&self, cpu: &Cpu, layer: &Layer, normed: &[f32], places: &Places, reach: Reach) -> Vec<f32> {
        let head_dim = self.frame.spec.head_dim();
        let mut queries = linear(cpu, normed, &layer.query);
        let mut keys = linear(cpu, normed, &layer.key);
        let values = linear(cpu, normed, &layer.value);
        cpu.rope(&mut queries, head_dim, &places.rotations, RopeStyle::HalfSplit);
        cpu.rope(&mut keys, head_dim, &places.rotations, RopeStyle::HalfSplit);
        let mut attended = vec![0.0; queries.len()];
        let call = DenseAttention {
            queries: &queries,
            keys: &keys,
            values: &values,
            heads: self.layers.heads,
            head_dim,
            scale: (head_dim as f32).powf(-0.5),
            segments: match reach {
                Reach::Window => &places.windows,
                Reach::Full => &places.clips,
            },
        };
        cpu.dense_attention(&call, &mut attended);
        attended
    }

    /// stream ← stream + the sum over all ranks of x · wᵀ, + bias.
    fn join(&self, cpu: &Cpu, x: &[f32], weights: &Linear, stream: &mut [f32]) -> Result<(), CollectiveError> {
        let mut part = if weights.matrix.cols() == 0 {
            vec![0.0; stream.len()]
        } else {
            product(cpu, x, &weights.matrix)
        };
        if let Some(others) = &self.others {
            others.all_reduce(&mut part)?;
        }
        cpu.add_bias(&mut part, &weights.bias);
        cpu.add_assign(stream, &part);
        Ok(())
    }

    /// Merged tokens to embeddings.
    pub(crate) fn adapt(&self, cpu: &Cpu, merged: &[f32]) -> Vec<f32> {
        let Frame {
            adapter, ones, epsilon, ..
        } = &*self.frame;
        let mut rows = product(cpu, merged, &adapter[0]);
        cpu.gelu(&mut rows);
        let mut rows = product(cpu, &rows, &adapter[1]);
        cpu.gelu(&mut rows);
        let mut rows = product(cpu, &rows, &adapter[2]);
        cpu.rms_norm_in_place(&mut rows, ones, *epsilon);
        rows
    }
}

impl Places {
    fn new(spec: &VisionSpec, grids: &[Grid]) -> Self {
        let half = spec.head_dim() / 2;
        let frequency = |j: usize| spec.theta.powf(-2.0 * j as f32 / half as f32);
        let frequencies: Vec<f32> = (0..half / 2).map(frequency).collect();
        let (mut windows, mut clips, mut order, mut angles) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for grid in grids {
            let (clip_order, clip_windows) = grid.windows(spec.table);
            for _ in 0..grid.clips {
                let first = order.len();
                order.extend(clip_order.iter().map(|index| first + index));
                windows.extend_from_slice(&clip_windows);
                clips.push(grid.clip());
                angles.extend(clip_order.iter().flat_map(|index| grid.angles(*index, &frequencies)));
            }
        }
        Self {
            rotations: Rotations::from_angles(&angles, half),
            windows,
            clips,
            order,
        }
    }
}

/// The rows that `order` names.
fn gathered(rows: &[f32], order: &[usize], width: usize) -> Vec<f32> {
    let rows = order.iter().flat_map(|index| &rows[index * width..][..width]);
    rows.copied().collect()
}

/// The reverse of `gathered`.
fn scattered(rows: &[f32], order: &[usize], width: usize) -> Vec<f32> {
    let mut back = vec![0.0; rows.len()];
    for (index, row) in order.iter().zip(rows.chunks_exact(width)) {
        back[index * width..][..width].copy_from_slice(row);
    }
    back
}

/// The patches of each cell as one row, channel by channel.
fn merged(spec: &VisionSpec, rows: &[f32], grids: &[Grid]) -> Vec<f32> {
    let (width, cell) = (spec.width, spec.merge * spec.merge);
    let mut merged = Vec::with_capacity(rows.len());
    let mut rest = rows;
    for grid in grids {
        let cells = grid.cells(spec.merge);
        for _ in 0..grid.clips {
            let (clip, others) = rest.split_at(grid.clip() * width);
            for patches in cells.chunks_exact(cell) {
                merged.extend(
                    (0..width).flat_map(|channel| patches.iter().map(move |patch| clip[patch * width + channel])),
                );
            }
            rest = others;
        }
    }
    merged
}
