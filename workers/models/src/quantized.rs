//! Experts whose weights a checkpoint keeps quantized, in the spellings that are published; the projections around them, too.
//!
//! ```text
//!   …experts.gate_up_proj  + …gate_up_proj_weight_scale, …weight_scale_2        all experts, gates above ups
//!   …experts.7.down_proj.weight + .weight_scale                                 one expert's own
//!   …experts.7.w13_weight.qweight + .scales, .qzeros, .g_idx                    inputs as rows
//! ```
//! A tensor's own type says how it is stored: bytes are pairs of E2M1 codes (NVFP4 with a second scale, MXFP4 without),
//! F8_E4M3 is FP8, 32-bit words are INT4; floats are not quantized, and some layers of a quantized model may be so. Only
//! what the types leave open is taken from the description: the length of groups, the shape of FP8 blocks.

mod description;
mod parts;
mod spelling;

use std::{collections::BTreeSet, ops::Range};

use cluster_kernels::{Arithmetic, Cpu, Cut, Matrix};

pub(crate) use description::Description;
use parts::Parts;
use spelling::Spelling;

use crate::{safetensors::SafetensorsFolder, weights::WeightsError};

/// One of the three weights of an expert.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Projection {
    Gate,
    Up,
    Down,
}

impl Projection {
    const ALL: [Projection; 3] = [Projection::Gate, Projection::Up, Projection::Down];
}

/// The weights of a layer's experts, as the description of the model has them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExpertsShape<'a> {
    /// What all their tensors are called first, as in `model.language_model.layers.3.mlp.experts`.
    pub(crate) prefix: &'a str,
    pub(crate) count: usize,
    /// Inputs of gate and up, outputs of down.
    pub(crate) width: usize,
    /// Outputs of gate and up, inputs of down.
    pub(crate) inner: usize,
}

impl ExpertsShape<'_> {
    /// Outputs and inputs of a weight.
    fn of(&self, projection: Projection) -> [usize; 2] {
        match projection {
            Projection::Gate | Projection::Up => [self.inner, self.width],
            Projection::Down => [self.width, self.inner],
        }
    }
}

/// Quantized weights in the files of a checkpoint.
pub(crate) struct Quantized<'a> {
    pub(crate) files: &'a SafetensorsFolder,
    pub(crate) description: Description,
    pub(crate) cpu: &'a Cpu,
    pub(crate) arithmetic: Arithmetic,
}

impl Quantized<'_> {
    /// A weight of expert `index`, of whose inner width `inner` is kept (rows of gate and up, columns of down). None: there
    /// is no such tensor, or it holds floats.
    pub(crate) fn expert(
        &self,
        shape: ExpertsShape<'_>,
        index: usize,
        projection: Projection,
        inner: Range<usize>,
    ) -> Result<Option<Matrix>, WeightsError> {
        let Some(spelling) = Spelling::find(self.files, shape.prefix, index, projection) else {
            return Ok(None);
        };
        let place = Place {
            index: spelling.stacked.then_some(index),
            count: shape.count,
            half: spelling.half(projection),
            halves: if spelling.fused { 2 } else { 1 },
            shape: shape.of(projection),
        };
        let [rows, cols] = place.shape;
        let first = place.half * rows;
        let cut = match projection {
            Projection::Gate | Projection::Up => Cut {
                rows: first + inner.start..first + inner.end,
                cols: 0..cols,
            },
            Projection::Down => Cut {
                rows: 0..rows,
                cols: inner,
            },
        };
        self.matrix(&spelling, &place, &cut)
    }

    /// A weight that is no expert's, as the projections around experts in some checkpoints, and the names of its tensors.
    /// None: there is no such tensor, or it holds floats.
    pub(crate) fn linear(&self, name: &str, shape: [usize; 2]) -> Result<Option<(Matrix, Vec<String>)>, WeightsError> {
        let Some(spelling) = Spelling::of(self.files, name) else {
            return Ok(None);
        };
        let place = Place {
            index: None,
            count: 1,
            half: 0,
            halves: 1,
            shape,
        };
        let cut = Cut {
            rows: 0..shape[0],
            cols: 0..shape[1],
        };
        let made = self.matrix(&spelling, &place, &cut)?;
        Ok(made.map(|matrix| (matrix, spelling.names(self.files))))
    }

    /// Part of a weight. None: it holds floats.
    fn matrix(&self, spelling: &Spelling, place: &Place, cut: &Cut) -> Result<Option<Matrix>, WeightsError> {
        let Some(parts) = Parts::read(self.files, spelling, place, &self.description)? else {
            return Ok(None);
        };
        let made = self.cpu.matrix_of(&parts.weight(), place.whole(), cut, self.arithmetic);
        made.map(Some).map_err(|source| WeightsError::Kernel {
            name: spelling.codes.clone(),
            source,
        })
    }

    /// Parts of the inner width begin at multiples of it.
    pub(crate) fn unit(&self, shape: ExpertsShape<'_>) -> usize {
        let spelling = Spelling::find(self.files, shape.prefix, 0, Projection::Down);
        spelling.map_or(1, |spelling| spelling.unit(self.files))
    }

    /// The names of all tensors of quantized experts, on whatever rank they are.
    pub(crate) fn names(&self, shape: ExpertsShape<'_>) -> BTreeSet<String> {
        let each = (0..shape.count).flat_map(|index| Projection::ALL.map(|projection| (index, projection)));
        each.filter_map(|(index, projection)| Spelling::find(self.files, shape.prefix, index, projection))
            .flat_map(|spelling| spelling.names(self.files))
            .collect()
    }
}

/// Where in its tensors a weight lies.
struct Place {
    /// Which of `count`, where all experts share the tensors.
    index: Option<usize>,
    count: usize,
    /// Which of `halves` above each other.
    half: usize,
    halves: usize,
    /// Outputs and inputs of the weight itself.
    shape: [usize; 2],
}

impl Place {
    /// Outputs and inputs of one expert's part of the tensor.
    fn whole(&self) -> [usize; 2] {
        [self.shape[0] * self.halves, self.shape[1]]
    }

    /// One expert's bytes out of those of all who share a tensor.
    fn slice<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        match self.index {
            Some(index) => {
                let len = bytes.len() / self.count;
                &bytes[index * len..(index + 1) * len]
            }
            None => bytes,
        }
    }

    /// The dimensions of a tensor, all experts' first if they share it.
    fn dimensions(&self, one: &[usize]) -> Vec<usize> {
        self.index
            .map(|_| self.count)
            .into_iter()
            .chain(one.iter().copied())
            .collect()
    }
}

#[cfg(test)]
mod tests;
