//! The audio tower as its description reads. Shares no code with what it judges.

use super::{
    checkpoint::Checkpoint,
    text::norm,
    vision::{add, gelu, linear},
};

/// What the description says once every default is in its place.
#[derive(Clone)]
pub(crate) struct Shape {
    /// Of each stage: steps that become one, width, blocks.
    pub(crate) stages: Vec<(usize, usize, usize)>,
    pub(crate) ratio: f64,
    pub(crate) taps: usize,
    pub(crate) eps: f64,
    /// Of the last norm, which is the language model's.
    pub(crate) text_eps: f64,
}

const TOWER: &str = "model.audio_tower.";

/// The rows that are spliced.
pub(crate) fn embeds(model: &Checkpoint, shape: &Shape, samples: &[f32]) -> Vec<Vec<f64>> {
    let gains = |name: &str, x: &[f64]| -> Vec<f64> {
        let weights = &model.tensor(&format!("{TOWER}{name}.weight")).values;
        norm(x, shape.eps).iter().zip(weights).map(|(x, w)| x * w).collect()
    };
    let whole: usize = shape.stages.iter().map(|(patch, ..)| patch).product();
    let mut steps: Vec<Vec<f64>> = samples.iter().map(|sample| vec![f64::from(*sample)]).collect();
    while !steps.len().is_multiple_of(whole) {
        steps.push(vec![0.0]);
    }
    for (s, (patch, width, blocks)) in shape.stages.iter().enumerate() {
        let mut grouped = Vec::new();
        for group in steps.chunks_exact(*patch) {
            let row = linear(
                model,
                &format!("{TOWER}layers.{s}.patch_embedder.proj"),
                &group.concat(),
            );
            grouped.push(gains(&format!("layers.{s}.patch_embedder.norm"), &row));
        }
        steps = grouped;
        for b in 0..*blocks {
            let of = |part: &str| format!("layers.{s}.conv_blocks.{b}.{part}");
            let weight = model.tensor(&format!("{TOWER}{}", of("conv.weight")));
            let bias = model.tensor(&format!("{TOWER}{}", of("conv.bias")));
            let mut after = Vec::new();
            for step in 0..steps.len() {
                let mut row = bias.values.clone();
                for channel in 0..*width {
                    for tap in 0..shape.taps {
                        if let Some(before) = (step + tap + 1).checked_sub(shape.taps) {
                            row[channel] += steps[before][channel] * weight.values[channel * shape.taps + tap];
                        }
                    }
                }
                let normed = gains(&of("norm"), &row);
                let inner = linear(model, &format!("{TOWER}{}", of("mlp.fc1")), &normed);
                assert_eq!(inner.len(), (*width as f64 * shape.ratio) as usize);
                let inner: Vec<f64> = inner.into_iter().map(gelu).collect();
                let mut row = linear(model, &format!("{TOWER}{}", of("mlp.fc2")), &inner);
                add(&mut row, &steps[step]);
                after.push(row);
            }
            steps = after;
        }
    }
    let mut rows = Vec::new();
    for step in &steps {
        let row = linear(model, &format!("{TOWER}proj"), &gains("norm", step));
        rows.push(norm(&gains("post_proj_norm", &row), shape.text_eps));
    }
    rows
}
