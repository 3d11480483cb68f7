//! The same weights written as GGUF must compute the same bits as from safetensors.

use std::{collections::BTreeMap, fs, path::Path};

use cluster_models::open;
use rstest::rstest;
use safetensors::SafeTensors;
use serde_json::Value;

use crate::{
    fixtures::{exact, folder, goldens, load, long_prompt, rows},
    sequences::{Sequences, bits, largest_difference},
};

/// Names of a layer's tensors in safetensors and in GGUF.
const LAYER_NAMES: [(&str, &str); 15] = [
    ("input_layernorm.weight", "attn_norm.weight"),
    ("self_attn.q_proj.weight", "attn_q.weight"),
    ("self_attn.k_proj.weight", "attn_k.weight"),
    ("self_attn.v_proj.weight", "attn_v.weight"),
    ("self_attn.q_proj.bias", "attn_q.bias"),
    ("self_attn.k_proj.bias", "attn_k.bias"),
    ("self_attn.v_proj.bias", "attn_v.bias"),
    ("self_attn.q_norm.weight", "attn_q_norm.weight"),
    ("self_attn.k_norm.weight", "attn_k_norm.weight"),
    ("self_attn.o_proj.weight", "attn_output.weight"),
    ("post_feedforward_layernorm.weight", "post_ffw_norm.weight"),
    ("mlp.gate.weight", "ffn_gate_inp.weight"),
    ("mlp.gate_proj.weight", "ffn_gate.weight"),
    ("mlp.up_proj.weight", "ffn_up.weight"),
    ("mlp.down_proj.weight", "ffn_down.weight"),
];

/// A tensor in 32-bit floats, slowest dimension first.
#[derive(Clone)]
struct Tensor {
    shape: Vec<usize>,
    values: Vec<f32>,
}

/// The content of a GGUF file to be written.
#[derive(Default)]
struct Gguf {
    pairs: Vec<u8>,
    pair_count: u64,
    tensors: BTreeMap<String, Tensor>,
}

impl Gguf {
    fn pair(&mut self, key: &str, kind: u32, value: &[u8]) {
        self.pairs.extend((key.len() as u64).to_le_bytes());
        self.pairs.extend(key.as_bytes());
        self.pairs.extend(kind.to_le_bytes());
        self.pairs.extend(value);
        self.pair_count += 1;
    }

    fn str(&mut self, key: &str, value: &str) {
        let len = (value.len() as u64).to_le_bytes();
        self.pair(key, 8, &[&len, value.as_bytes()].concat());
    }

    fn number(&mut self, key: &str, value: u64) {
        self.pair(key, 4, &(value as u32).to_le_bytes());
    }

    fn float(&mut self, key: &str, value: f64) {
        self.pair(key, 6, &(value as f32).to_le_bytes());
    }

    fn write(&self, path: &Path) {
        let mut bytes = b"GGUF\x03\0\0\0".to_vec();
        bytes.extend((self.tensors.len() as u64).to_le_bytes());
        bytes.extend(self.pair_count.to_le_bytes());
        bytes.extend(&self.pairs);
        let mut data = Vec::new();
        for (name, tensor) in &self.tensors {
            bytes.extend((name.len() as u64).to_le_bytes());
            bytes.extend(name.as_bytes());
            bytes.extend((tensor.shape.len() as u32).to_le_bytes());
            tensor
                .shape
                .iter()
                .rev()
                .for_each(|dim| bytes.extend((*dim as u64).to_le_bytes()));
            bytes.extend(0_u32.to_le_bytes());
            bytes.extend((data.len() as u64).to_le_bytes());
            tensor.values.iter().for_each(|value| data.extend(value.to_le_bytes()));
            data.resize(data.len().next_multiple_of(32), 0);
        }
        bytes.resize(bytes.len().next_multiple_of(32), 0);
        bytes.extend(data);
        fs::write(path, bytes).unwrap();
    }
}

/// All tensors of a checkpoint's files.
fn tensors(checkpoint: &str) -> BTreeMap<String, Tensor> {
    let mut tensors = BTreeMap::new();
    for entry in fs::read_dir(folder(checkpoint)).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if name.starts_with("model") && name.ends_with(".safetensors") {
            let bytes = fs::read(path).unwrap();
            for (name, view) in SafeTensors::deserialize(&bytes).unwrap().iter() {
                let values = match view.dtype() {
                    safetensors::Dtype::F32 => view.data().chunks_exact(4).map(le_f32).collect(),
                    safetensors::Dtype::BF16 => view
                        .data()
                        .chunks_exact(2)
                        .map(|half| le_f32(&[0, 0, half[0], half[1]]))
                        .collect(),
                    other => panic!("no fixture has {other:?}"),
                };
                let shape = view.shape().to_vec();
                tensors.insert(name.to_owned(), Tensor { shape, values });
            }
        }
    }
    tensors
}

fn le_f32(bytes: &[u8]) -> f32 {
    f32::from_le_bytes(bytes.try_into().unwrap())
}

/// Rewrites a checkpoint as the tools of the format would.
fn convert(checkpoint: &str, architecture: &str) -> Gguf {
    let config: Value = serde_json::from_slice(&fs::read(folder(checkpoint).join("config.json")).unwrap()).unwrap();
    let mut gguf = Gguf::default();
    gguf.str("general.architecture", architecture);
    metadata(&mut gguf, architecture, &config);
    let mut originals = tensors(checkpoint);
    if architecture == "gemma3" {
        let norms = originals.iter_mut().filter(|(name, _)| name.contains("norm"));
        norms.for_each(|(_, norm)| norm.values.iter_mut().for_each(|value| *value += 1.0));
    }
    for (from, to) in [
        ("model.embed_tokens.weight", "token_embd.weight"),
        ("model.norm.weight", "output_norm.weight"),
        ("lm_head.weight", "output.weight"),
    ] {
        if let Some(tensor) = originals.remove(from) {
            gguf.tensors.insert(to.to_owned(), tensor);
        }
    }
    let number = |key: &str| config[key].as_u64().unwrap() as usize;
    for layer in 0..number("num_hidden_layers") {
        let from = |name: &str| format!("model.layers.{layer}.{name}");
        let to = |name: &str| format!("blk.{layer}.{name}");
        for (original, name) in LAYER_NAMES {
            if let Some(mut tensor) = originals.remove(&from(original)) {
                if architecture == "llama" && (name == "attn_q.weight" || name == "attn_k.weight") {
                    tensor = interleave(&tensor, number("head_dim"));
                }
                gguf.tensors.insert(to(name), tensor);
            }
        }
        let (norm, post_norm) = if architecture == "gemma3" {
            (
                "pre_feedforward_layernorm.weight",
                Some("post_attention_layernorm.weight"),
            )
        } else {
            ("post_attention_layernorm.weight", None)
        };
        gguf.tensors
            .insert(to("ffn_norm.weight"), originals.remove(&from(norm)).unwrap());
        if let Some(norm) = post_norm {
            gguf.tensors
                .insert(to("post_attention_norm.weight"), originals.remove(&from(norm)).unwrap());
        }
        for part in ["gate", "up", "down"] {
            let all: Vec<Tensor> = (0..config["num_local_experts"].as_u64().unwrap_or(0))
                .filter_map(|expert| originals.remove(&from(&format!("mlp.experts.{expert}.{part}_proj.weight"))))
                .collect();
            if let Some(stacked) = stack(&all) {
                gguf.tensors.insert(to(&format!("ffn_{part}_exps.weight")), stacked);
            }
        }
    }
    assert_eq!(originals.keys().next(), None, "every tensor was converted");
    gguf
}

fn metadata(gguf: &mut Gguf, architecture: &str, config: &Value) {
    let key = |name: &str| format!("{architecture}.{name}");
    for (from, to) in [
        ("num_hidden_layers", "block_count"),
        ("max_position_embeddings", "context_length"),
        ("hidden_size", "embedding_length"),
        ("intermediate_size", "feed_forward_length"),
        ("num_attention_heads", "attention.head_count"),
        ("num_key_value_heads", "attention.head_count_kv"),
        ("head_dim", "attention.key_length"),
        ("head_dim", "attention.value_length"),
        ("sliding_window", "attention.sliding_window"),
        ("num_local_experts", "expert_count"),
        ("num_experts_per_tok", "expert_used_count"),
        ("moe_intermediate_size", "expert_feed_forward_length"),
        ("vocab_size", "vocab_size"),
    ] {
        if let Some(value) = config[from].as_u64() {
            gguf.number(&key(to), value);
        }
    }
    gguf.float(
        &key("attention.layer_norm_rms_epsilon"),
        config["rms_norm_eps"].as_f64().unwrap(),
    );
    let rope = &config["rope_parameters"];
    let rope = rope.get("full_attention").unwrap_or(rope);
    gguf.float(&key("rope.freq_base"), rope["rope_theta"].as_f64().unwrap());
}

/// Rows of each head in the order 0, d/2, 1, d/2 + 1, …
fn interleave(tensor: &Tensor, head_dim: usize) -> Tensor {
    let cols = tensor.shape[1];
    let rows = (0..tensor.shape[0]).flat_map(|row| {
        let (head, place) = (row / head_dim, row % head_dim);
        let original = head * head_dim + place % 2 * (head_dim / 2) + place / 2;
        &tensor.values[original * cols..(original + 1) * cols]
    });
    Tensor {
        shape: tensor.shape.clone(),
        values: rows.copied().collect(),
    }
}

fn stack(tensors: &[Tensor]) -> Option<Tensor> {
    let shape = std::iter::once(tensors.len())
        .chain(tensors.first()?.shape.iter().copied())
        .collect();
    let values = tensors
        .iter()
        .flat_map(|tensor| tensor.values.iter().copied())
        .collect();
    Some(Tensor { shape, values })
}

fn run_file(gguf: &Gguf, tokens: &[u32]) -> Vec<Vec<f32>> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    gguf.write(&path);
    let model = open(&path, exact()).unwrap().model().unwrap();
    Sequences::new(model, 1).run(0, tokens, &[tokens.len()])
}

#[rstest]
#[case("llama-tiny", "llama")]
#[case("qwen2-tiny", "qwen2")]
#[case("qwen3-tiny", "qwen3")]
#[case("qwen3-moe-tiny", "qwen3moe")]
#[case("gemma3-tiny", "gemma3")]
fn both_layouts_compute_the_same_bits(#[case] checkpoint: &str, #[case] architecture: &str) {
    let tokens = long_prompt(checkpoint);
    let model = load(checkpoint, exact()).model().unwrap();
    let expected = Sequences::new(model, 1).run(0, &tokens, &[tokens.len()]);
    let computed = run_file(&convert(checkpoint, architecture), &tokens);
    assert_eq!(bits(&computed), bits(&expected));
}

/// The tools of the format write the scaling of Llama 3 as divisors of the angles.
#[test]
fn divisors_of_the_angles_are_obeyed() {
    let rope = fs::read_to_string(folder("llama-tiny").join("llama3-rope-parameters.json")).unwrap();
    let rope: Value = serde_json::from_str(&rope).unwrap();
    let number = |key: &str| rope[key].as_f64().unwrap();
    let (pairs, factor) = (4, number("factor"));
    let divisors = (0..pairs).map(|pair| {
        let wavelength = std::f64::consts::TAU * number("rope_theta").powf(f64::from(pair) / f64::from(pairs));
        let turns = number("original_max_position_embeddings") / wavelength;
        let (low, high) = (number("low_freq_factor"), number("high_freq_factor"));
        let kept = ((turns - low) / (high - low)).clamp(0.0, 1.0);
        (1.0 / (kept + (1.0 - kept) / factor)) as f32
    });
    let mut gguf = convert("llama-tiny", "llama");
    let divisors = Tensor {
        shape: vec![pairs as usize],
        values: divisors.collect(),
    };
    gguf.tensors.insert("rope_freqs.weight".into(), divisors);

    let golden = goldens("llama-tiny").pop().unwrap();
    let computed = run_file(&gguf, &golden.tokens);
    let bytes = fs::read(folder("llama-tiny").join("golden.safetensors")).unwrap();
    let expected = rows(&SafeTensors::deserialize(&bytes).unwrap(), "llama3rope.p3.logits");
    for (position, expected) in golden.positions.iter().zip(&expected) {
        let difference = largest_difference(&computed[*position], expected);
        assert!(difference < 2e-4, "position {position}: {difference}");
    }
}
