//! Mixtures of experts: tensors of all experts or of each, floats or quantized, and the ways in and out.

use std::ops::Range;

use cluster_kernels::{Arithmetic, Matrix};

use super::{Loader, ones};
use crate::{
    checkpoint::{Checkpoint, Tensor},
    names::{Naming, Part},
    quantized::{ExpertsShape, Projection, Quantized},
    spec::{ExpertsSpec, RoutingSpec},
    weights::{ExpertsWeights, Gated, Pool, PostNorm, WeightsError, cut::Cut},
};

impl Loader<'_> {
    pub(super) fn experts(&self, layer: usize, spec: &ExpertsSpec) -> Result<ExpertsWeights, WeightsError> {
        let hidden = self.loading.spec.hidden;
        let router = self.naming.weight(layer, Part::Router);
        let router = self.exact(&router, [spec.count, hidden])?;
        let here = self.loading.shard.experts(spec.count);
        Ok(ExpertsWeights {
            router,
            router_bias: match spec.routing {
                RoutingSpec::Softmax { .. } => None,
                RoutingSpec::Sigmoid { .. } => Some(self.vector(&self.naming.router_bias(layer), spec.count)?),
            },
            pool: spec.pool.map(|width| self.pool(layer, width)).transpose()?,
            experts: self.gated_experts(layer, spec, here.clone())?,
            here,
            whole: self.loading.shard.whole_experts(),
        })
    }

    fn pool(&self, layer: usize, width: usize) -> Result<Pool, WeightsError> {
        let hidden = self.loading.spec.hidden;
        let whole = |part, rows, cols| {
            let name = self.naming.weight(layer, part);
            match self.quantized_linear(&name, [rows, cols])? {
                Some(matrix) => Ok(matrix),
                None => self.matrix(&name, [rows, cols], &Cut::rows(0..rows, cols)),
            }
        };
        Ok(Pool {
            into: whole(Part::PreExpert, width, hidden)?,
            norm: self.layer_norm(layer, Part::PreExpertNorm, width)?,
            result_norm: PostNorm {
                factors: Some(self.layer_norm(layer, Part::PostExpertNorm, width)?),
                weight: ones(width),
            },
            back: whole(Part::PostExpert, hidden, width)?,
        })
    }

    /// The weight `NAME.weight` in a format that has scales beside its codes. None: it is not in such a format.
    fn quantized_linear(&self, name: &str, shape: [usize; 2]) -> Result<Option<Matrix>, WeightsError> {
        let stem = name.strip_suffix(".weight").unwrap_or(name);
        let made = self.quantized().map(|quantized| quantized.linear(stem, shape));
        let Some((matrix, names)) = made.transpose()?.flatten() else {
            return Ok(None);
        };
        names.iter().for_each(|name| self.mark_used(name));
        Ok(Some(matrix))
    }

    /// None: files of this kind have no scales beside codes.
    fn quantized(&self) -> Option<Quantized<'_>> {
        let Checkpoint::Folder { files, description, .. } = self.loading.checkpoint else {
            return None;
        };
        Some(Quantized {
            files,
            description: *description,
            cpu: self.cpu,
            arithmetic: self.loading.arithmetic,
        })
    }

    fn gated_experts(&self, layer: usize, spec: &ExpertsSpec, here: Range<usize>) -> Result<Vec<Gated>, WeightsError> {
        match self.quantized_experts(layer, spec, here.clone())? {
            Some(experts) => Ok(experts),
            None => self.plain_experts(layer, spec, here),
        }
    }

    /// Experts in a format of safetensors files that has scales beside its codes. None: they are not in such a format.
    fn quantized_experts(
        &self,
        layer: usize,
        spec: &ExpertsSpec,
        here: Range<usize>,
    ) -> Result<Option<Vec<Gated>>, WeightsError> {
        let Some(quantized) = self.quantized() else {
            return Ok(None);
        };
        let prefix = self.naming.experts(layer);
        let shape = ExpertsShape {
            prefix: &prefix,
            count: spec.count,
            width: spec.row_width(self.loading.spec.hidden),
            inner: spec.width,
        };
        let inner = self.loading.shard.expert_inner(spec.width, quantized.unit(shape));
        let mut experts = Vec::with_capacity(here.len());
        for index in here {
            let matrix = |projection| quantized.expert(shape, index, projection, inner.clone());
            let Some(gate) = matrix(Projection::Gate)? else {
                return Ok(None);
            };
            let up = matrix(Projection::Up)?.ok_or_else(|| missing(&prefix, index, "up"))?;
            let down = matrix(Projection::Down)?.ok_or_else(|| missing(&prefix, index, "down"))?;
            experts.push(Gated { gate, up, down });
        }
        // Those that are not here are used by other ranks.
        quantized.names(shape).iter().for_each(|name| self.mark_used(name));
        Ok((!experts.is_empty()).then_some(experts))
    }

    /// Experts in formats of one tensor each.
    fn plain_experts(&self, layer: usize, spec: &ExpertsSpec, here: Range<usize>) -> Result<Vec<Gated>, WeightsError> {
        let row = spec.row_width(self.loading.spec.hidden);
        let stacked = self.naming.stacked_experts(layer);
        let is_stacked = self.loading.checkpoint.has(&stacked[0]);
        let expert = |index| {
            let [gate, up, down] = if is_stacked {
                self.stacked_expert(&stacked, spec, row, index)?
            } else {
                self.named_expert(layer, spec, row, index)?
            };
            let inner = self
                .loading
                .shard
                .expert_inner(spec.width, down.tensor.dtype.block_len());
            let rows = Cut::rows(inner.clone(), row);
            Ok(Gated {
                gate: gate.pack(self, [spec.width, row], &rows)?,
                up: up.pack(self, [spec.width, row], &rows)?,
                down: down.pack(self, [row, spec.width], &Cut::cols(row, inner))?,
            })
        };
        // Those that are not here are used by other ranks.
        if is_stacked {
            stacked.iter().for_each(|name| self.mark_used(name));
        } else {
            let parts = [Part::ExpertGate, Part::ExpertUp, Part::ExpertDown];
            let names = (0..spec.count).flat_map(|index| parts.map(|part| self.naming.expert(layer, index, part)));
            names.for_each(|name| self.mark_used(&name));
        }
        here.map(expert).collect()
    }

    /// One expert in tensors of all: gates and ups in one, downs in the other.
    fn stacked_expert(
        &self,
        [gate_up, down]: &[String; 2],
        spec: &ExpertsSpec,
        row: usize,
        index: usize,
    ) -> Result<[Named<'_>; 3], WeightsError> {
        let both = self.slice(gate_up, [spec.count, 2 * spec.width, row], index)?;
        let down = self.slice(down, [spec.count, row, spec.width], index)?;
        let (gate, up) = both.tensor.bytes.split_at(both.tensor.bytes.len() / 2);
        Ok([both.with(gate), both.with(up), down])
    }

    /// One expert's matrices: tensors of their own, or slices of the tensors of all.
    fn named_expert(
        &self,
        layer: usize,
        spec: &ExpertsSpec,
        row: usize,
        index: usize,
    ) -> Result<[Named<'_>; 3], WeightsError> {
        let matrix = |part, rows, cols| {
            let name = self.naming.expert(layer, index, part);
            match self.naming {
                Naming::Gguf => self.slice(&name, [spec.count, rows, cols], index),
                Naming::HuggingFace { .. } => Ok(Named {
                    tensor: self.shaped(&name, &[rows, cols])?,
                    name,
                }),
            }
        };
        Ok([
            matrix(Part::ExpertGate, spec.width, row)?,
            matrix(Part::ExpertUp, spec.width, row)?,
            matrix(Part::ExpertDown, row, spec.width)?,
        ])
    }

    /// Matrix `index` of a tensor of many.
    fn slice(&self, name: &str, shape: [usize; 3], index: usize) -> Result<Named<'_>, WeightsError> {
        let all = self.shaped(name, &shape)?;
        let size = all.bytes.len() / shape[0];
        let tensor = Tensor {
            bytes: &all.bytes[index * size..(index + 1) * size],
            ..all
        };
        Ok(Named {
            name: name.into(),
            tensor,
        })
    }

    /// A router's: rounding its input could send a token to another expert, so products with it are always exact.
    fn exact(&self, name: &str, [rows, cols]: [usize; 2]) -> Result<Matrix, WeightsError> {
        let tensor = self.shaped(name, &[rows, cols])?;
        self.pack(name, &tensor, cols, &Cut::rows(0..rows, cols), Arithmetic::Exact)
    }
}

/// A matrix in a file, with the name of its tensor.
struct Named<'a> {
    name: String,
    tensor: Tensor<'a>,
}

impl<'a> Named<'a> {
    /// Other bytes of the same tensor.
    fn with(&self, bytes: &'a [u8]) -> Self {
        Self {
            name: self.name.clone(),
            tensor: Tensor { bytes, ..self.tensor },
        }
    }

    fn pack(&self, loader: &Loader<'_>, [_, cols]: [usize; 2], cut: &Cut) -> Result<Matrix, WeightsError> {
        loader.pack(&self.name, &self.tensor, cols, cut, loader.loading.arithmetic)
    }
}

fn missing(prefix: &str, index: usize, what: &str) -> WeightsError {
    WeightsError::Missing(format!(
        "{prefix}, {what} projection of {index} in the format of its gate"
    ))
}
