//! Random checkpoints: numbers from a seed, kept for the references and written as published files are.

use std::{collections::BTreeMap, fs, path::Path};

use safetensors::{Dtype, tensor::TensorView};
use serde_json::{Value, json};

/// A tensor's numbers, already rounded to the type it is written in.
pub(crate) struct Array {
    pub(crate) shape: Vec<usize>,
    pub(crate) values: Vec<f64>,
    dtype: Dtype,
}

/// A description and its tensors.
pub(crate) struct Checkpoint {
    pub(crate) config: Value,
    tensors: BTreeMap<String, Array>,
    seed: u64,
}

impl Checkpoint {
    pub(crate) fn new(config: Value, seed: u64) -> Self {
        let tensors = BTreeMap::new();
        Self { config, tensors, seed }
    }

    /// A tensor of this spread around zero.
    pub(crate) fn add(&mut self, name: &str, shape: &[usize], spread: f64, dtype: Dtype) {
        let len = shape.iter().product();
        let values = (0..len).map(|_| rounded(self.normal() * spread, dtype)).collect();
        let shape = shape.to_vec();
        self.tensors.insert(name.into(), Array { shape, values, dtype });
    }

    /// A matrix that keeps the size of what it is given.
    pub(crate) fn matrix(&mut self, name: &str, [rows, cols]: [usize; 2], dtype: Dtype) {
        self.add(name, &[rows, cols], (cols as f64).powf(-0.5), dtype);
    }

    /// A norm's gains, around one.
    pub(crate) fn gains(&mut self, name: &str, width: usize, dtype: Dtype) {
        self.add(name, &[width], 0.2, dtype);
        let values = &mut self.tensors.get_mut(name).unwrap().values;
        values
            .iter_mut()
            .for_each(|value| *value = rounded(*value + 1.0, dtype));
    }

    pub(crate) fn tensor(&self, name: &str) -> &Array {
        let tensor = self.tensors.get(name);
        tensor.unwrap_or_else(|| panic!("the generator makes no '{name}'"))
    }

    /// A number between 0 and 1.
    pub(crate) fn uniform(&mut self) -> f64 {
        self.seed = self.seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.seed;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((bits ^ (bits >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        let (radius, angle) = (1.0 - self.uniform(), self.uniform());
        (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
    }

    /// Replaces the tensors of all experts by one for each, as some files have them.
    pub(crate) fn name_experts(&mut self) {
        let stacked = |name: &&String| name.ends_with(".gate_up_proj") || name.ends_with(".experts.down_proj");
        let names: Vec<String> = self.tensors.keys().filter(stacked).cloned().collect();
        for name in names {
            let all = self.tensors.remove(&name).unwrap();
            let (prefix, kind) = name.rsplit_once('.').unwrap();
            let kinds: &[&str] = if kind == "down_proj" {
                &["down"]
            } else {
                &["gate", "up"]
            };
            let (rows, cols) = (all.shape[1] / kinds.len(), all.shape[2]);
            for (index, values) in all.values.chunks_exact(rows * cols).enumerate() {
                let (expert, kind) = (index / kinds.len(), kinds[index % kinds.len()]);
                let own = Array {
                    shape: vec![rows, cols],
                    values: values.to_vec(),
                    dtype: all.dtype,
                };
                self.tensors
                    .insert(format!("{prefix}.{expert}.{kind}_proj.weight"), own);
            }
        }
    }

    /// Writes config.json and the tensors: into one file, or into several with an index.
    pub(crate) fn write(&self, folder: &Path, files: usize) {
        fs::write(folder.join("config.json"), self.config.to_string()).unwrap();
        let bytes: Vec<(&String, &Array, Vec<u8>)> = self
            .tensors
            .iter()
            .map(|(name, array)| (name, array, array.bytes()))
            .collect();
        let view = |array: &Array, bytes| TensorView::new(array.dtype, array.shape.clone(), bytes).unwrap();
        if files == 1 {
            let views = bytes.iter().map(|(name, array, bytes)| (name, view(array, bytes)));
            safetensors::serialize_to_file(views, None, &folder.join("model.safetensors")).unwrap();
            return;
        }
        let mut index = serde_json::Map::new();
        for (part, share) in bytes.chunks(bytes.len().div_ceil(files)).enumerate() {
            let file = format!("model-{:05}-of-{files:05}.safetensors", part + 1);
            index.extend(share.iter().map(|(name, ..)| ((*name).clone(), json!(file))));
            let views = share.iter().map(|(name, array, bytes)| (name, view(array, bytes)));
            safetensors::serialize_to_file(views, None, &folder.join(file)).unwrap();
        }
        let index = json!({ "metadata": { "total_size": 1 }, "weight_map": index });
        fs::write(folder.join("model.safetensors.index.json"), index.to_string()).unwrap();
    }
}

impl Array {
    /// x · wᵀ of a matrix, or of matrix `index` of a stack, from row `first` on.
    pub(crate) fn product_at(&self, index: usize, first: usize, rows: usize, x: &[f64]) -> Vec<f64> {
        let (high, cols) = (self.shape[self.shape.len() - 2], self.shape[self.shape.len() - 1]);
        assert_eq!(cols, x.len());
        let mut out = Vec::new();
        for row in first..first + rows {
            let start = (index * high + row) * cols;
            let weights = &self.values[start..start + cols];
            out.push(weights.iter().zip(x).map(|(w, x)| w * x).sum());
        }
        out
    }

    /// x · wᵀ.
    pub(crate) fn product(&self, x: &[f64]) -> Vec<f64> {
        assert_eq!(self.shape.len(), 2);
        self.product_at(0, 0, self.shape[0], x)
    }

    fn bytes(&self) -> Vec<u8> {
        let values = self.values.iter();
        match self.dtype {
            Dtype::F32 => values.flat_map(|value| (*value as f32).to_le_bytes()).collect(),
            Dtype::F16 => values
                .flat_map(|value| half::f16::from_f64(*value).to_le_bytes())
                .collect(),
            Dtype::BF16 => values
                .flat_map(|value| half::bf16::from_f64(*value).to_le_bytes())
                .collect(),
            other => panic!("{other:?} is not written"),
        }
    }
}

fn rounded(value: f64, dtype: Dtype) -> f64 {
    match dtype {
        Dtype::F32 => f64::from(value as f32),
        Dtype::F16 => half::f16::from_f64(value).to_f64(),
        Dtype::BF16 => half::bf16::from_f64(value).to_f64(),
        other => panic!("{other:?} is not written"),
    }
}
