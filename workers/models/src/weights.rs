//! The weights of a model in the kernels' layout, shared by all its instances.
//!
//! ```text
//!  Checkpoint (names, file bytes) + ModelSpec (shapes) ─▶ Weights { embedding, layers: [norms, matrices], head }
//! ```
//! Every tensor the description asks for must be there with the right shape, and every tensor of the file must have been
//! asked for: a file that holds more than the decoder computes is another model.

use std::{collections::HashSet, sync::Mutex, thread};

use cluster_kernels::{Arithmetic, Cpu, Expert, KernelError, Matrix, reference};

use crate::{
    checkpoint::{Checkpoint, Tensor},
    names::{Naming, Part},
    spec::{AttentionSpec, ExpertsSpec, FfnSpec, LayerSpec, ModelSpec},
};

/// Why tensors cannot become weights.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WeightsError {
    /// A tensor that is needed.
    #[error("tensor '{0}' is missing")]
    Missing(String),
    /// A tensor with another shape than the description says.
    #[error("tensor '{name}' is {got:?}, expected {expected:?}")]
    Shape {
        /// Which tensor.
        name: String,
        /// What the description says.
        expected: Vec<usize>,
        /// What the file has.
        got: Vec<usize>,
    },
    /// A tensor of a type that is not supported.
    #[error("tensor '{name}' has type {dtype}, which is not supported")]
    DType {
        /// Which tensor.
        name: String,
        /// Its type.
        dtype: String,
    },
    /// Tensors that this kind of model does not have.
    #[error("the file has {count} tensors that a {family} model does not use, among them '{name}'")]
    Unused {
        /// The kind of model.
        family: &'static str,
        /// How many there are.
        count: usize,
        /// One of them.
        name: String,
    },
    /// The kernels refuse.
    #[error("tensor '{name}': {source}")]
    Kernel {
        /// Which tensor.
        name: String,
        /// Why.
        source: KernelError,
    },
}

/// All weights of a model.
pub(crate) struct Weights {
    pub(crate) embedding: Matrix,
    /// None: the embedding is the head.
    head: Option<Matrix>,
    pub(crate) norm: Vec<f32>,
    /// The angles are divided by these, where the file has them.
    pub(crate) rope_divisors: Option<Vec<f32>>,
    pub(crate) layers: Vec<LayerWeights>,
}

/// The weights of a layer.
pub(crate) struct LayerWeights {
    pub(crate) attention_norm: Vec<f32>,
    pub(crate) query: Linear,
    pub(crate) key: Linear,
    pub(crate) value: Linear,
    /// Of query heads and of key heads.
    pub(crate) head_norms: Option<(Vec<f32>, Vec<f32>)>,
    pub(crate) output: Matrix,
    /// Behind attention and behind the feed-forward part.
    pub(crate) post_norms: Option<(Vec<f32>, Vec<f32>)>,
    pub(crate) ffn_norm: Vec<f32>,
    pub(crate) ffn: FfnWeights,
}

/// A matrix with its bias.
pub(crate) struct Linear {
    pub(crate) matrix: Matrix,
    pub(crate) bias: Option<Vec<f32>>,
}

/// The matrices of a feed-forward part.
pub(crate) enum FfnWeights {
    Dense(Gated),
    Experts { router: Matrix, experts: Vec<Gated> },
}

/// down(activation(gate x) ⊙ up x).
pub(crate) struct Gated {
    pub(crate) gate: Matrix,
    pub(crate) up: Matrix,
    pub(crate) down: Matrix,
}

impl Gated {
    pub(crate) fn as_expert(&self) -> Expert<'_> {
        Expert {
            gate: &self.gate,
            up: &self.up,
            down: &self.down,
        }
    }

    fn bytes(&self) -> usize {
        self.gate.bytes() + self.up.bytes() + self.down.bytes()
    }
}

impl Weights {
    /// Reads and repacks everything, with as many threads as `cpu` has.
    pub(crate) fn load(
        checkpoint: &Checkpoint,
        spec: &ModelSpec,
        cpu: &Cpu,
        arithmetic: Arithmetic,
    ) -> Result<Self, WeightsError> {
        let loader = Loader {
            checkpoint,
            spec,
            cpu,
            arithmetic,
            naming: checkpoint.naming(spec),
            used: Mutex::default(),
        };
        let weights = loader.weights()?;
        loader.refuse_unused()?;
        Ok(weights)
    }

    /// The matrix from the last norm to logits.
    pub(crate) fn head(&self) -> &Matrix {
        self.head.as_ref().unwrap_or(&self.embedding)
    }

    /// Bytes of memory the matrices take.
    pub(crate) fn bytes(&self) -> usize {
        let layers: usize = self.layers.iter().map(LayerWeights::bytes).sum();
        self.embedding.bytes() + self.head.as_ref().map_or(0, Matrix::bytes) + layers
    }
}

impl LayerWeights {
    fn bytes(&self) -> usize {
        let linears = [&self.query.matrix, &self.key.matrix, &self.value.matrix, &self.output];
        let ffn = match &self.ffn {
            FfnWeights::Dense(gated) => gated.bytes(),
            FfnWeights::Experts { router, experts } => router.bytes() + experts.iter().map(Gated::bytes).sum::<usize>(),
        };
        linears.map(Matrix::bytes).iter().sum::<usize>() + ffn
    }
}

struct Loader<'a> {
    checkpoint: &'a Checkpoint,
    spec: &'a ModelSpec,
    cpu: &'a Cpu,
    arithmetic: Arithmetic,
    naming: Naming,
    used: Mutex<HashSet<String>>,
}

impl Loader<'_> {
    fn weights(&self) -> Result<Weights, WeightsError> {
        let spec = self.spec;
        let (vocabulary, hidden) = (spec.vocabulary, spec.hidden);
        let head = if spec.tied_head {
            self.mark_used(self.naming.head());
            None
        } else {
            Some(self.matrix(self.naming.head(), vocabulary, hidden)?)
        };
        Ok(Weights {
            embedding: self.matrix(self.naming.embedding(), vocabulary, hidden)?,
            head,
            norm: self.norm(self.naming.final_norm(), hidden)?,
            rope_divisors: self.rope_divisors()?,
            layers: self.layers()?,
        })
    }

    /// Threads take layers in turn; repacking is the larger part of opening a model.
    fn layers(&self) -> Result<Vec<LayerWeights>, WeightsError> {
        let count = self.spec.layers.len();
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
        let LayerSpec {
            attention,
            ffn,
            post_norms,
        } = &self.spec.layers[index];
        let hidden = self.spec.hidden;
        let norm = |part, width| self.norm(&self.naming.weight(index, part), width);
        let pair = |first, second, width| Ok((norm(first, width)?, norm(second, width)?));
        Ok(LayerWeights {
            attention_norm: norm(Part::AttentionNorm, hidden)?,
            query: self.heads(index, Part::Query, attention, attention.heads)?,
            key: self.heads(index, Part::Key, attention, attention.kv_heads)?,
            value: self.linear(index, Part::Value, attention.kv_width(), attention.bias)?,
            head_norms: match attention.head_norm {
                true => Some(pair(Part::QueryNorm, Part::KeyNorm, attention.head_dim)?),
                false => None,
            },
            output: self.layer_matrix(index, Part::AttentionOutput, hidden, attention.query_width())?,
            post_norms: match post_norms {
                true => Some(pair(Part::PostAttentionNorm, Part::PostFfnNorm, hidden)?),
                false => None,
            },
            ffn_norm: norm(Part::FfnNorm, hidden)?,
            ffn: match ffn {
                FfnSpec::Dense { width } => FfnWeights::Dense(self.dense(index, *width)?),
                FfnSpec::Experts(experts) => self.experts(index, experts)?,
            },
        })
    }

    fn dense(&self, layer: usize, width: usize) -> Result<Gated, WeightsError> {
        let hidden = self.spec.hidden;
        Ok(Gated {
            gate: self.layer_matrix(layer, Part::Gate, width, hidden)?,
            up: self.layer_matrix(layer, Part::Up, width, hidden)?,
            down: self.layer_matrix(layer, Part::Down, hidden, width)?,
        })
    }

    fn experts(&self, layer: usize, experts: &ExpertsSpec) -> Result<FfnWeights, WeightsError> {
        let hidden = self.spec.hidden;
        let router = self.naming.weight(layer, Part::Router);
        let tensor = self.shaped(&router, &[experts.count, hidden])?;
        // Rounding a router's input could send a token to another expert, so it is always exact.
        let router = self.pack(&router, &tensor, experts.count, hidden, Arithmetic::Exact)?;
        let expert = |index| {
            Ok(Gated {
                gate: self.expert(layer, index, Part::ExpertGate, experts, [experts.width, hidden])?,
                up: self.expert(layer, index, Part::ExpertUp, experts, [experts.width, hidden])?,
                down: self.expert(layer, index, Part::ExpertDown, experts, [hidden, experts.width])?,
            })
        };
        Ok(FfnWeights::Experts {
            router,
            experts: (0..experts.count).map(expert).collect::<Result<_, _>>()?,
        })
    }

    /// One expert's matrix: a tensor of its own, or a slice of the tensor of all.
    fn expert(
        &self,
        layer: usize,
        index: usize,
        part: Part,
        experts: &ExpertsSpec,
        [rows, cols]: [usize; 2],
    ) -> Result<Matrix, WeightsError> {
        let name = self.naming.expert(layer, index, part);
        match self.naming {
            Naming::HuggingFace { .. } => self.matrix(&name, rows, cols),
            Naming::Gguf => {
                let all = self.shaped(&name, &[experts.count, rows, cols])?;
                let size = all.bytes.len() / experts.count;
                let one = Tensor {
                    bytes: &all.bytes[index * size..(index + 1) * size],
                    ..all
                };
                self.pack(&name, &one, rows, cols, self.arithmetic)
            }
        }
    }

    /// A matrix whose rows are the channels of heads that are rotated; brought into the order of `Rope` if necessary.
    fn heads(&self, layer: usize, part: Part, attention: &AttentionSpec, heads: usize) -> Result<Linear, WeightsError> {
        let head_dim = attention.head_dim;
        let rows = heads * head_dim;
        if self.naming != Naming::Gguf || !self.spec.family.gguf_pairs() {
            return self.linear(layer, part, rows, attention.bias);
        }
        let (name, cols) = (self.naming.weight(layer, part), self.spec.hidden);
        let tensor = self.shaped(&name, &[rows, cols])?;
        let bytes = unpair_rows(tensor.bytes, rows, head_dim);
        let unpaired = Tensor {
            bytes: &bytes,
            ..tensor
        };
        Ok(Linear {
            matrix: self.pack(&name, &unpaired, rows, cols, self.arithmetic)?,
            bias: None,
        })
    }

    fn linear(&self, layer: usize, part: Part, rows: usize, bias: bool) -> Result<Linear, WeightsError> {
        let bias = match bias {
            true => Some(self.vector(&self.naming.bias(layer, part), rows)?),
            false => None,
        };
        Ok(Linear {
            matrix: self.layer_matrix(layer, part, rows, self.spec.hidden)?,
            bias,
        })
    }

    fn layer_matrix(&self, layer: usize, part: Part, rows: usize, cols: usize) -> Result<Matrix, WeightsError> {
        self.matrix(&self.naming.weight(layer, part), rows, cols)
    }

    fn matrix(&self, name: &str, rows: usize, cols: usize) -> Result<Matrix, WeightsError> {
        let tensor = self.shaped(name, &[rows, cols])?;
        self.pack(name, &tensor, rows, cols, self.arithmetic)
    }

    fn pack(
        &self,
        name: &str,
        tensor: &Tensor<'_>,
        rows: usize,
        cols: usize,
        arithmetic: Arithmetic,
    ) -> Result<Matrix, WeightsError> {
        let packed = self.cpu.matrix(tensor.dtype, rows, cols, tensor.bytes, arithmetic);
        packed.map_err(|source| WeightsError::Kernel {
            name: name.into(),
            source,
        })
    }

    /// A norm's weights as factors.
    fn norm(&self, name: &str, width: usize) -> Result<Vec<f32>, WeightsError> {
        let mut weights = self.vector(name, width)?;
        if self.naming != Naming::Gguf && self.spec.family.norms_minus_one() {
            weights.iter_mut().for_each(|weight| *weight += 1.0);
        }
        Ok(weights)
    }

    fn rope_divisors(&self) -> Result<Option<Vec<f32>>, WeightsError> {
        let wanted = self.spec.layers.iter().find(|layer| layer.attention.rope.divisors);
        wanted
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
        let tensor = self.checkpoint.tensor(name)?;
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
        let mut unused = self.checkpoint.names();
        // Old checkpoints carry the angles of the rotation, which the description determines.
        unused.retain(|name| !used.contains(*name) && !name.ends_with("rotary_emb.inv_freq"));
        unused.sort_unstable();
        match unused.first() {
            None => Ok(()),
            Some(name) => Err(WeightsError::Unused {
                family: self.spec.family.name(),
                count: unused.len(),
                name: (*name).to_owned(),
            }),
        }
    }
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
