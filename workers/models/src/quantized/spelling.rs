//! What the tensors of an expert's weight are called. A spelling is a row in a table.

use ::safetensors::Dtype;

use super::Projection;
use crate::safetensors::SafetensorsFolder;

/// The names that gate, up and down go by, and whether gate and up share one.
const WEIGHTS: [([&str; 3], bool); 5] = [
    (["gate_up_proj", "gate_up_proj", "down_proj"], true),
    (["gate_proj", "up_proj", "down_proj"], false),
    (["w13_weight", "w13_weight", "w2_weight"], true),
    (["w13", "w13", "w2"], true),
    (["w1", "w3", "w2"], false),
];

/// What follows the name for codes, and what its companions' names begin with.
const CODES: [(&str, &str); 4] = [
    (".qweight", "."),
    ("_qweight", "_"),
    (".weight", ".weight_"),
    ("", "_weight_"),
];

/// The kinds of companions.
const KINDS: [&str; 6] = ["scale", "scale_inv", "scale_2", "scales", "qzeros", "g_idx"];

/// The tensors of one weight.
#[derive(Debug)]
pub(super) struct Spelling {
    /// The tensor of codes.
    pub(super) codes: String,
    /// What its companions are called, without the word for their kind.
    companions: String,
    /// Whether all experts share the tensors.
    pub(super) stacked: bool,
    /// Whether gate and up share them.
    pub(super) fused: bool,
}

impl Spelling {
    /// The spelling whose tensor of codes is there.
    pub(super) fn find(files: &SafetensorsFolder, prefix: &str, index: usize, projection: Projection) -> Option<Self> {
        let holders = [(format!("{prefix}.{index}"), false), (prefix.to_owned(), true)];
        for (holder, stacked) in &holders {
            for (names, fused) in WEIGHTS {
                let name = format!("{holder}.{}", names[projection as usize]);
                let known = CODES.iter().find(|(end, _)| files.has(&format!("{name}{end}")));
                if let Some((end, companion)) = known {
                    return Some(Self {
                        codes: format!("{name}{end}"),
                        companions: format!("{name}{companion}"),
                        stacked: *stacked,
                        fused: fused && projection != Projection::Down,
                    });
                }
            }
        }
        None
    }

    /// The spelling of a weight with a name of its own.
    pub(super) fn of(files: &SafetensorsFolder, name: &str) -> Option<Self> {
        let known = CODES.iter().find(|(end, _)| files.has(&format!("{name}{end}")));
        known.map(|(end, companion)| Self {
            codes: format!("{name}{end}"),
            companions: format!("{name}{companion}"),
            stacked: false,
            fused: false,
        })
    }

    /// A tensor beside the codes, as `scale` in `…weight_scale`.
    pub(super) fn companion(&self, kind: &str) -> String {
        format!("{}{kind}", self.companions)
    }

    /// The names of all its tensors.
    pub(super) fn names(&self, files: &SafetensorsFolder) -> Vec<String> {
        let companions = KINDS.map(|kind| self.companion(kind)).into_iter();
        let there = companions.filter(|name| files.has(name));
        there.chain([self.codes.clone()]).collect()
    }

    /// Inputs that cannot be parted.
    pub(super) fn unit(&self, files: &SafetensorsFolder) -> usize {
        match files.raw(&self.codes).map(|codes| codes.dtype) {
            Some(Dtype::U8 | Dtype::I8) if files.has(&self.companion("scale_2")) => 16,
            Some(Dtype::U8 | Dtype::I8) => 32,
            Some(Dtype::I32) => 8,
            _ => 1,
        }
    }

    /// Which half of the rows is the projection's.
    pub(super) fn half(&self, projection: Projection) -> usize {
        usize::from(self.fused && projection == Projection::Up)
    }
}
