//! The audio tower: samples to embeddings. No attention; every step sees the past alone.
//!
//! ```text
//!  samples ─▶ [ group steps, linear, norm, [ convolution over time, norm, inner, + input ] x blocks ] x stages ─▶ norm, linear, norms
//! ```
//! It is small and not split: with several ranks, each takes whole sounds.

use cluster_kernels::Cpu;

use super::{
    spec::{AudioSpec, MediaSpec, StageSpec},
    tensors::{Linear, Tensors, linear},
};
use crate::WeightsError;

pub(crate) struct Audio {
    samples_per_token: usize,
    epsilon: f32,
    stages: Vec<Stage>,
    norm: Vec<f32>,
    projection: Linear,
    norm_after: Vec<f32>,
    /// Of the last norm.
    ones: Vec<f32>,
    last_epsilon: f32,
}

struct Stage {
    projection: Linear,
    norm: Vec<f32>,
    blocks: Vec<Block>,
}

struct Block {
    /// `[taps, width]`.
    taps: Vec<f32>,
    bias: Vec<f32>,
    norm: Vec<f32>,
    up: Linear,
    down: Linear,
}

impl Audio {
    pub(crate) fn load(tensors: &Tensors<'_>, spec: &AudioSpec, media: &MediaSpec) -> Result<Self, WeightsError> {
        let (tower, width) = ("model.audio_tower", media.width);
        let mut stages = Vec::new();
        // The first stage is given single samples.
        let mut before = 1;
        for (index, stage) in spec.stages.iter().enumerate() {
            stages.push(Stage::load(
                tensors,
                &format!("{tower}.layers.{index}"),
                stage,
                spec.taps,
                before,
            )?);
            before = stage.width;
        }
        Ok(Self {
            samples_per_token: spec.samples_per_token(),
            epsilon: spec.epsilon,
            stages,
            norm: tensors.numbers(&format!("{tower}.norm.weight"), &[before])?,
            projection: tensors.linear(&format!("{tower}.proj"), [width, before])?,
            norm_after: tensors.numbers(&format!("{tower}.post_proj_norm.weight"), &[width])?,
            ones: vec![1.0; width],
            last_epsilon: media.epsilon,
        })
    }

    /// The embeddings of a sound.
    pub(crate) fn run(&self, cpu: &Cpu, samples: &[f32]) -> Vec<f32> {
        let mut rows = self.tower(cpu, samples);
        cpu.rms_norm_in_place(&mut rows, &self.ones, self.last_epsilon);
        rows
    }

    /// All but the last norm.
    pub(crate) fn tower(&self, cpu: &Cpu, samples: &[f32]) -> Vec<f32> {
        let mut stream = samples.to_vec();
        stream.resize(samples.len().next_multiple_of(self.samples_per_token), 0.0);
        for stage in &self.stages {
            // Consecutive steps lie side by side: as rows of the projection they need not be moved.
            stream = linear(cpu, &stream, &stage.projection);
            cpu.rms_norm_in_place(&mut stream, &stage.norm, self.epsilon);
            for block in &stage.blocks {
                let added = self.block(cpu, block, &stream);
                cpu.add_assign(&mut stream, &added);
            }
        }
        cpu.rms_norm_in_place(&mut stream, &self.norm, self.epsilon);
        let mut rows = linear(cpu, &stream, &self.projection);
        cpu.rms_norm_in_place(&mut rows, &self.norm_after, self.epsilon);
        rows
    }

    fn block(&self, cpu: &Cpu, block: &Block, stream: &[f32]) -> Vec<f32> {
        let mut rows = vec![0.0; stream.len()];
        cpu.causal_convolution(stream, &block.taps, &block.bias, &mut rows);
        cpu.rms_norm_in_place(&mut rows, &block.norm, self.epsilon);
        let mut inner = linear(cpu, &rows, &block.up);
        cpu.gelu(&mut inner);
        linear(cpu, &inner, &block.down)
    }
}

impl Stage {
    fn load(
        tensors: &Tensors<'_>,
        at: &str,
        spec: &StageSpec,
        taps: usize,
        before: usize,
    ) -> Result<Self, WeightsError> {
        let blocks =
            (0..spec.blocks).map(|block| Block::load(tensors, &format!("{at}.conv_blocks.{block}"), spec, taps));
        Ok(Self {
            projection: tensors.linear(&format!("{at}.patch_embedder.proj"), [spec.width, spec.patch * before])?,
            norm: tensors.numbers(&format!("{at}.patch_embedder.norm.weight"), &[spec.width])?,
            blocks: blocks.collect::<Result<_, _>>()?,
        })
    }
}

impl Block {
    fn load(tensors: &Tensors<'_>, at: &str, spec: &StageSpec, taps: usize) -> Result<Self, WeightsError> {
        let width = spec.width;
        let by_channel = tensors.numbers(&format!("{at}.conv.weight"), &[width, 1, taps])?;
        let by_tap = (0..taps).flat_map(|tap| by_channel.iter().skip(tap).step_by(taps));
        Ok(Self {
            taps: by_tap.copied().collect(),
            bias: tensors.numbers(&format!("{at}.conv.bias"), &[width])?,
            norm: tensors.numbers(&format!("{at}.norm.weight"), &[width])?,
            up: tensors.linear(&format!("{at}.mlp.fc1"), [spec.inner, width])?,
            down: tensors.linear(&format!("{at}.mlp.fc2"), [width, spec.inner])?,
        })
    }
}
