//! Reads and repacks the weights of one rank. Every tensor of the file must be asked for by some rank's table; which of
//! its rows and columns this rank takes is the shard's business.

mod experts;

use std::{collections::HashSet, ops::Range, sync::Mutex, thread};

use cluster_kernels::{Arithmetic, Cpu, Matrix, reference};

use super::{
    Blend, FfnWeights, Gated, HeadNorms, Join, LayerWeights, Linear, PostNorm, Weights, WeightsError, cut::Cut,
};
use crate::{
    checkpoint::{Checkpoint, Tensor},
    names::{Naming, Part},
    shard::{Heads, Shard},
    spec::{AttentionSpec, FfnSpec, LayerSpec, ModelSpec, Norm},
};

/// The least square of a stream's share in a residual gate.
const KEEP_MIN: f32 = 1e-3;

/// What weights are read from, and how.
#[derive(Clone, Copy)]
pub(crate) struct Loading<'a> {
    pub(crate) checkpoint: &'a Checkpoint,
    pub(crate) spec: &'a ModelSpec,
    pub(crate) arithmetic: Arithmetic,
    pub(crate) shard: Shard,
}

/// Reads and repacks everything, with as many threads as `cpu` has.
pub(crate) fn load(loading: Loading<'_>, cpu: &Cpu) -> Result<Weights, WeightsError> {
    let loader = Loader {
        naming: loading.checkpoint.naming(loading.spec),
        loading,
        cpu,
        used: Mutex::default(),
    };
    let weights = loader.weights()?;
    loader.refuse_unused()?;
    Ok(weights)
}

struct Loader<'a> {
    loading: Loading<'a>,
    cpu: &'a Cpu,
    naming: Naming,
    used: Mutex<HashSet<String>>,
}

impl Loader<'_> {
    fn weights(&self) -> Result<Weights, WeightsError> {
        let spec = self.loading.spec;
        let shape = [spec.vocabulary, spec.hidden];
        let tokens = self.loading.shard.share(spec.vocabulary);
        let cut = Cut::rows(tokens.clone(), spec.hidden);
        let head = if spec.tied_head {
            self.mark_used(self.naming.head());
            None
        } else {
            Some(self.matrix(self.naming.head(), shape, &cut)?)
        };
        Ok(Weights {
            embedding: self.matrix(self.naming.embedding(), shape, &cut)?,
            head,
            tokens,
            norm: self.norm(
                self.naming.final_norm(),
                spec.hidden,
                spec.family.final_norm_minus_one(),
            )?,
            rope_divisors: self.rope_divisors()?,
            layers: self.layers()?,
        })
    }

    /// Threads take layers in turn; repacking is the larger part of opening a model.
    fn layers(&self) -> Result<Vec<LayerWeights>, WeightsError> {
        let count = self.loading.spec.layers.len();
        let threads = self.cpu.threads().clamp(1, count);
        let mut slots: Vec<Option<Result<LayerWeights, WeightsError>>> = Vec::new();
        slots.resize_with(count, || None);
        let share = count.div_ceil(threads);
        thread::scope(|scope| {
            for (part, slots) in slots.chunks_mut(share).enumerate() {
                scope.spawn(move || {
                    for (index, slot) in slots.iter_mut().enumerate() {
                        *slot = Some(self.layer(part * share + index));
                    }
                });
            }
        });
        slots.into_iter().flatten().collect()
    }

    fn layer(&self, index: usize) -> Result<LayerWeights, WeightsError> {
        let layer = &self.loading.spec.layers[index];
        let (attention, hidden) = (&layer.attention, self.loading.spec.hidden);
        let heads = self.loading.shard.heads(attention);
        let (query, kv) = (std::slice::from_ref(&heads.query), head_ranges(&heads));
        let norm = |part| self.layer_norm(index, part, hidden);
        Ok(LayerWeights {
            attention_norm: norm(Part::AttentionNorm)?,
            query: self.heads(index, Part::Query, attention, query)?,
            key: self.heads(index, Part::Key, attention, &kv)?,
            value: self.heads(index, Part::Value, attention, &kv)?,
            head_norms: self.head_norms(index, attention)?,
            output_norm: attention.output_norm.then(|| ones(attention.head_dim)),
            output_gate: match attention.output_gate {
                true => Some(self.heads(index, Part::OutputGate, attention, query)?.matrix),
                false => None,
            },
            output: self.matrix(
                &self.naming.weight(index, Part::AttentionOutput),
                [hidden, attention.query_width()],
                &Cut::cols(hidden, channels(&heads.query, attention.head_dim)),
            )?,
            attention_join: self.join(
                index,
                layer,
                layer.post_attention,
                [Part::PostAttentionNorm, Part::AttentionResidual],
            )?,
            ffn_norm: norm(Part::FfnNorm)?,
            ffn: match &layer.ffn {
                FfnSpec::Dense { width } => FfnWeights::Dense(self.dense(index, *width)?),
                FfnSpec::Experts(experts) => FfnWeights::Experts(self.experts(index, experts)?),
            },
            ffn_join: self.join(index, layer, layer.post_ffn, [Part::PostFfnNorm, Part::FfnResidual])?,
        })
    }

    fn head_norms(&self, layer: usize, attention: &AttentionSpec) -> Result<Option<HeadNorms>, WeightsError> {
        let norm = |part| self.post_norm(layer, part, attention.head_norm, attention.head_dim);
        let pair = norm(Part::QueryNorm)?.zip(norm(Part::KeyNorm)?);
        Ok(pair.map(|(query, key)| HeadNorms {
            query: query.weight,
            key: key.weight,
        }))
    }

    fn join(
        &self,
        index: usize,
        layer: &LayerSpec,
        norm: Norm,
        [norm_part, gate_part]: [Part; 2],
    ) -> Result<Join, WeightsError> {
        let hidden = self.loading.spec.hidden;
        let blend = |temperature| {
            let gate = self.vector(&self.naming.residual_gate(index, gate_part), hidden)?;
            Ok(Blend::of(&gate, temperature))
        };
        Ok(Join {
            norm: self.post_norm(index, norm_part, norm, hidden)?,
            blend: layer.residual_gate.map(blend).transpose()?,
        })
    }

    fn post_norm(&self, layer: usize, part: Part, norm: Norm, width: usize) -> Result<Option<PostNorm>, WeightsError> {
        Ok(match norm {
            Norm::None => None,
            Norm::Plain => Some(PostNorm {
                factors: None,
                weight: ones(width),
            }),
            Norm::Gain => Some(PostNorm {
                factors: None,
                weight: self.layer_norm(layer, part, width)?,
            }),
            Norm::InputScaled => Some(PostNorm {
                factors: Some(self.layer_norm(layer, part, width)?),
                weight: ones(width),
            }),
        })
    }

    fn dense(&self, layer: usize, width: usize) -> Result<Gated, WeightsError> {
        let hidden = self.loading.spec.hidden;
        let [gate, up, down] = [Part::Gate, Part::Up, Part::Down].map(|part| self.naming.weight(layer, part));
        let unit = self.loading.checkpoint.tensor(&down)?.dtype.block_len();
        let inner = self.loading.shard.inner(width, unit);
        let rows = Cut::rows(inner.clone(), hidden);
        Ok(Gated {
            gate: self.matrix(&gate, [width, hidden], &rows)?,
            up: self.matrix(&up, [width, hidden], &rows)?,
            down: self.matrix(&down, [hidden, width], &Cut::cols(hidden, inner))?,
        })
    }

    /// The rows of some heads, and their biases; brought into the order of `Rope` if necessary.
    fn heads(
        &self,
        layer: usize,
        part: Part,
        attention: &AttentionSpec,
        heads: &[Range<usize>],
    ) -> Result<Linear, WeightsError> {
        let (head_dim, cols) = (attention.head_dim, self.loading.spec.hidden);
        let total = match part {
            Part::Key | Part::Value => attention.kv_width(),
            _ => attention.query_width(),
        };
        let cut = Cut {
            rows: heads.iter().map(|heads| channels(heads, head_dim)).collect(),
            cols: 0..cols,
        };
        let name = self.naming.weight(layer, part);
        let tensor = self.shaped(&name, &[total, cols])?;
        let turned = matches!(part, Part::Query | Part::Key);
        let matrix = if turned && self.naming == Naming::Gguf && self.loading.spec.family.gguf_pairs() {
            let bytes = unpair_rows(tensor.bytes, total, head_dim);
            let unpaired = Tensor {
                bytes: &bytes,
                ..tensor
            };
            self.pack(&name, &unpaired, cols, &cut, self.loading.arithmetic)?
        } else {
            self.pack(&name, &tensor, cols, &cut, self.loading.arithmetic)?
        };
        let bias = match attention.bias {
            true => Some(self.vector(&self.naming.bias(layer, part), total)?),
            false => None,
        };
        let own = |bias: Vec<f32>| cut.rows.iter().cloned().flatten().map(|row| bias[row]).collect();
        Ok(Linear {
            matrix,
            bias: bias.map(own),
        })
    }

    fn matrix(&self, name: &str, shape: [usize; 2], cut: &Cut) -> Result<Matrix, WeightsError> {
        let tensor = self.shaped(name, &shape)?;
        self.pack(name, &tensor, shape[1], cut, self.loading.arithmetic)
    }

    /// Part of a matrix of `cols` columns.
    fn pack(
        &self,
        name: &str,
        tensor: &Tensor<'_>,
        cols: usize,
        cut: &Cut,
        arithmetic: Arithmetic,
    ) -> Result<Matrix, WeightsError> {
        let [part_rows, part_cols] = cut.shape();
        let packed = cut
            .of(tensor, cols)
            .and_then(|bytes| self.cpu.matrix(tensor.dtype, part_rows, part_cols, &bytes, arithmetic));
        packed.map_err(|source| WeightsError::Kernel {
            name: name.into(),
            source,
        })
    }

    fn layer_norm(&self, layer: usize, part: Part, width: usize) -> Result<Vec<f32>, WeightsError> {
        let minus_one = self.loading.spec.family.norms_minus_one();
        self.norm(&self.naming.weight(layer, part), width, minus_one)
    }

    /// A norm's weights as factors.
    fn norm(&self, name: &str, width: usize, minus_one: bool) -> Result<Vec<f32>, WeightsError> {
        let mut weights = self.vector(name, width)?;
        if self.naming != Naming::Gguf && minus_one {
            weights.iter_mut().for_each(|weight| *weight += 1.0);
        }
        Ok(weights)
    }

    fn rope_divisors(&self) -> Result<Option<Vec<f32>>, WeightsError> {
        let divided = |layer: &&LayerSpec| layer.attention.rope.as_ref().is_some_and(|rope| rope.divisors);
        let layer = self.loading.spec.layers.iter().find(divided);
        layer
            .map(|layer| self.vector(self.naming.rope_divisors(), layer.attention.head_dim / 2))
            .transpose()
    }

    fn vector(&self, name: &str, len: usize) -> Result<Vec<f32>, WeightsError> {
        let tensor = self.shaped(name, &[len])?;
        let mut values = vec![0.0; len];
        reference::dequantize(tensor.dtype, tensor.bytes, &mut values);
        Ok(values)
    }

    fn shaped(&self, name: &str, expected: &[usize]) -> Result<Tensor<'_>, WeightsError> {
        let tensor = self.loading.checkpoint.tensor(name)?;
        if tensor.shape != expected {
            return Err(WeightsError::Shape {
                name: name.into(),
                expected: expected.into(),
                got: tensor.shape.into(),
            });
        }
        self.mark_used(name);
        Ok(tensor)
    }

    fn mark_used(&self, name: &str) {
        let mut used = self.used.lock().expect("no thread panics while it holds the set");
        used.insert(name.to_owned());
    }

    fn refuse_unused(&self) -> Result<(), WeightsError> {
        let used = self.used.lock().expect("no thread panics while it holds the set");
        let mut unused = self.loading.checkpoint.names();
        unused.retain(|name| !used.contains(*name) && !self.naming.skips(name));
        unused.sort_unstable();
        match unused.first() {
            None => Ok(()),
            Some(name) => Err(WeightsError::Unused {
                family: self.loading.spec.family.name(),
                count: unused.len(),
                name: (*name).to_owned(),
            }),
        }
    }
}

impl Blend {
    fn of(gate: &[f32], temperature: f32) -> Self {
        let take = gate.iter().map(|gate| sigmoid(gate / temperature));
        let keep = |gate: &f32| {
            let gate = gate / temperature;
            (sigmoid(-gate) * (1.0 + sigmoid(gate))).max(KEEP_MIN).sqrt()
        };
        Self {
            take: take.collect(),
            keep: gate.iter().map(keep).collect(),
        }
    }
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

fn ones(len: usize) -> Vec<f32> {
    vec![1.0; len]
}

/// Each key and value head as a range of its own.
fn head_ranges(heads: &Heads) -> Vec<Range<usize>> {
    heads.kv.iter().map(|head| *head..head + 1).collect()
}

/// The channels of some heads.
fn channels(heads: &Range<usize>, head_dim: usize) -> Range<usize> {
    heads.start * head_dim..heads.end * head_dim
}

/// Undoes the order (0, d/2, 1, d/2 + 1, …) of the rows of every head.
fn unpair_rows(bytes: &[u8], rows: usize, head_dim: usize) -> Vec<u8> {
    let (row_bytes, half) = (bytes.len() / rows, head_dim / 2);
    let mut unpaired = Vec::with_capacity(bytes.len());
    for head in bytes.chunks_exact(head_dim * row_bytes) {
        for channel in 0..head_dim {
            let row = 2 * (channel % half) + channel / half;
            unpaired.extend_from_slice(&head[row * row_bytes..(row + 1) * row_bytes]);
        }
    }
    unpaired
}

#[cfg(test)]
mod tests;
