//! Reads a config.json as published checkpoints have it, in its older and newer spellings.

use serde::Deserialize;
use serde_json::Value;

use super::{
    Activation, AttentionSpec, ExpertsSpec, Family, FfnSpec, LayerSpec, ModelSpec, Norm, Rope, RopeScaling,
    RoutingSpec, SpecError, layer_count, muse,
};

/// The keys that are understood. Others do not change what a model computes, except those `refuse_unsupported` looks at.
#[derive(Deserialize)]
struct Config {
    hidden_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    num_key_value_heads: Option<usize>,
    head_dim: Option<usize>,
    intermediate_size: usize,
    vocab_size: usize,
    max_position_embeddings: usize,
    rms_norm_eps: f64,
    #[serde(alias = "hidden_activation")]
    hidden_act: String,
    tie_word_embeddings: Option<bool>,
    query_pre_attn_scalar: Option<f64>,
    #[serde(alias = "torch_dtype")]
    dtype: Option<String>,

    rope_parameters: Option<Value>,
    rope_theta: Option<f64>,
    rope_scaling: Option<Value>,
    rope_local_base_freq: Option<f64>,

    layer_types: Option<Vec<String>>,
    sliding_window: Option<usize>,
    sliding_window_pattern: Option<usize>,
    use_sliding_window: Option<bool>,
    max_window_layers: Option<usize>,

    #[serde(alias = "num_experts")]
    num_local_experts: Option<usize>,
    num_experts_per_tok: Option<usize>,
    moe_intermediate_size: Option<usize>,
    decoder_sparse_step: Option<usize>,
    mlp_only_layers: Option<Vec<usize>>,
    norm_topk_prob: Option<bool>,
}

/// One table of rope settings.
#[derive(Deserialize, Default)]
struct RopeTable {
    rope_type: Option<String>,
    #[serde(rename = "type")]
    old_type: Option<String>,
    rope_theta: Option<f64>,
    factor: Option<f64>,
    low_freq_factor: Option<f64>,
    high_freq_factor: Option<f64>,
    original_max_position_embeddings: Option<f64>,
    attention_factor: Option<f64>,
    beta_fast: Option<f64>,
    beta_slow: Option<f64>,
}

/// What config.json describes.
pub fn from_config(json: &[u8]) -> Result<ModelSpec, SpecError> {
    let value: Value = serde_json::from_slice(json).map_err(|error| SpecError::Json(error.to_string()))?;
    let model_type = value.get("model_type").and_then(Value::as_str);
    let family = Family::from_config(model_type.ok_or_else(|| SpecError::Missing("model_type".into()))?)?;
    if family == Family::MuseSpark {
        return muse::from_config(&value)?.checked();
    }
    refuse_unsupported(&value)?;
    let config: Config = serde_json::from_value(value).map_err(|error| SpecError::Json(error.to_string()))?;
    config.spec(family)?.checked()
}

/// Keys that would change the result, with the only value that is supported.
fn refuse_unsupported(config: &Value) -> Result<(), SpecError> {
    const ONLY: [(&str, &[Value], &str); 8] = [
        ("attention_bias", &[Value::Bool(false)], "only false is"),
        ("mlp_bias", &[Value::Bool(false)], "only false is"),
        ("attn_logit_softcapping", &[], "only null is"),
        ("final_logit_softcapping", &[], "only null is"),
        ("use_bidirectional_attention", &[Value::Bool(false)], "only false is"),
        ("quantization_config", &[], "use unquantized safetensors or a GGUF file"),
        ("layer_norm_type", &[], "only RMS norms are"),
        ("attention_sinks", &[], "only null is"),
    ];
    for (key, supported, instead) in ONLY {
        let value = config.get(key).unwrap_or(&Value::Null);
        if !value.is_null() && !supported.contains(value) {
            return Err(unsupported(key, value.to_string(), instead));
        }
    }
    let partial = config.get("partial_rotary_factor").and_then(Value::as_f64);
    match partial {
        Some(part) if part != 1.0 => Err(unsupported("partial_rotary_factor", part.to_string(), "only 1 is")),
        _ => Ok(()),
    }
}

impl Config {
    fn spec(&self, family: Family) -> Result<ModelSpec, SpecError> {
        let switches = family.switches();
        Ok(ModelSpec {
            family,
            hidden: self.hidden_size,
            vocabulary: self.vocab_size,
            context: self.max_position_embeddings,
            norm_epsilon: self.rms_norm_eps as f32,
            post_norm_epsilon: self.rms_norm_eps as f32,
            embedding_norm: false,
            logit_scale: 1.0,
            logit_cap: None,
            tied_head: self.tie_word_embeddings.unwrap_or(family == Family::Gemma3),
            embedding_scale: if switches.scaled_embedding {
                self.embedding_scale()
            } else {
                1.0
            },
            activation: self.activation(switches.activation)?,
            layers: (0..layer_count("num_hidden_layers", self.num_hidden_layers)?)
                .map(|layer| self.layer(family, layer))
                .collect::<Result<_, _>>()?,
        })
    }

    /// The square root of the width, in the type of the weights.
    fn embedding_scale(&self) -> f32 {
        let scale = (self.hidden_size as f32).sqrt();
        match self.dtype.as_deref() {
            Some("bfloat16") => half::bf16::from_f32(scale).to_f32(),
            Some("float16") => half::f16::from_f32(scale).to_f32(),
            _ => scale,
        }
    }

    fn activation(&self, expected: Activation) -> Result<Activation, SpecError> {
        match (self.hidden_act.as_str(), expected) {
            ("silu", Activation::Silu) | ("gelu_pytorch_tanh", Activation::GeluTanh) => Ok(expected),
            _ => Err(unsupported(
                "hidden_act",
                format!("'{}'", self.hidden_act),
                "only the family's own is: silu, or gelu_pytorch_tanh for gemma3",
            )),
        }
    }

    fn layer(&self, family: Family, layer: usize) -> Result<LayerSpec, SpecError> {
        let switches = family.switches();
        let head_dim = self
            .head_dim
            .unwrap_or(self.hidden_size / self.num_attention_heads.max(1));
        let window = self.window(family, layer)?;
        let rope = self.rope(window.is_some())?;
        let scale = self.query_pre_attn_scalar.unwrap_or(head_dim as f64).powf(-0.5) as f32;
        Ok(LayerSpec {
            attention: AttentionSpec {
                heads: self.num_attention_heads,
                kv_heads: self.num_key_value_heads.unwrap_or(self.num_attention_heads),
                head_dim,
                bias: switches.bias,
                head_norm: Norm::gain_if(switches.head_norm),
                output_norm: false,
                output_gate: false,
                scale,
                window,
                rope: Some(rope),
            },
            ffn: self.ffn(family, layer)?,
            post_attention: Norm::gain_if(switches.post_norms),
            post_ffn: Norm::gain_if(switches.post_norms),
            residual_gate: None,
        })
    }

    /// The window of a layer: by `layer_types` where it is given, else by the family's older keys.
    fn window(&self, family: Family, layer: usize) -> Result<Option<usize>, SpecError> {
        let slides = match &self.layer_types {
            Some(types) => match types.get(layer).map(String::as_str) {
                Some("full_attention") => false,
                Some("sliding_attention") => true,
                Some(other) => {
                    return Err(unsupported(
                        &format!("layer_types[{layer}]"),
                        format!("'{other}'"),
                        "only full_attention and sliding_attention are",
                    ));
                }
                None => return Err(SpecError::Missing(format!("layer_types[{layer}]"))),
            },
            None if family == Family::Gemma3 => !(layer + 1).is_multiple_of(self.sliding_window_pattern.unwrap_or(6)),
            None => self.use_sliding_window.unwrap_or(false) && layer >= self.max_window_layers.unwrap_or(0),
        };
        if !slides {
            return Ok(None);
        }
        let window = self.sliding_window;
        window
            .map(Some)
            .ok_or_else(|| SpecError::Missing("sliding_window".into()))
    }

    /// Newer files have `rope_parameters`, one table or one per layer type; older ones `rope_theta` and `rope_scaling`.
    fn rope(&self, slides: bool) -> Result<Rope, SpecError> {
        if let Some(parameters) = &self.rope_parameters {
            let name = if slides { "sliding_attention" } else { "full_attention" };
            return parse_table("rope_parameters", parameters.get(name).unwrap_or(parameters))?.rope(None, self);
        }
        let scaling = self.rope_scaling.as_ref().filter(|value| !value.is_null());
        match (scaling, self.rope_local_base_freq) {
            (_, Some(base)) if slides => RopeTable::default().rope(Some(base), self),
            (Some(table), _) => parse_table("rope_scaling", table)?.rope(self.rope_theta, self),
            (None, _) => RopeTable::default().rope(self.rope_theta, self),
        }
    }

    fn ffn(&self, family: Family, layer: usize) -> Result<FfnSpec, SpecError> {
        let dense = FfnSpec::Dense {
            width: self.intermediate_size,
        };
        let step = self.decoder_sparse_step.unwrap_or(1);
        let dense_by_list = self.mlp_only_layers.as_ref().is_some_and(|list| list.contains(&layer));
        if family != Family::Qwen3Moe || dense_by_list || step == 0 || !(layer + 1).is_multiple_of(step) {
            return Ok(dense);
        }
        let missing = |key: &str| SpecError::Missing(key.into());
        Ok(FfnSpec::Experts(ExpertsSpec {
            width: self
                .moe_intermediate_size
                .ok_or_else(|| missing("moe_intermediate_size"))?,
            count: self.num_local_experts.ok_or_else(|| missing("num_experts"))?,
            active: self.num_experts_per_tok.ok_or_else(|| missing("num_experts_per_tok"))?,
            routing: RoutingSpec::Softmax {
                normalize: self.norm_topk_prob.unwrap_or(false),
            },
            pool: None,
        }))
    }
}

fn parse_table(key: &str, value: &Value) -> Result<RopeTable, SpecError> {
    serde_json::from_value(value.clone()).map_err(|error| SpecError::Json(format!("'{key}': {error}")))
}

impl RopeTable {
    fn rope(&self, theta: Option<f64>, config: &Config) -> Result<Rope, SpecError> {
        let missing = || SpecError::Missing("rope_theta".into());
        Ok(Rope {
            theta: theta.or(self.rope_theta).or(config.rope_theta).ok_or_else(missing)?,
            scaling: self.scaling(config.max_position_embeddings as f64)?,
            divisors: false,
        })
    }

    fn scaling(&self, context: f64) -> Result<RopeScaling, SpecError> {
        let name = self
            .rope_type
            .as_deref()
            .or(self.old_type.as_deref())
            .unwrap_or("default");
        let need = |value: Option<f64>, key: &str| value.ok_or_else(|| SpecError::Missing(format!("rope {key}")));
        let original = self.original_max_position_embeddings;
        Ok(match name {
            "default" => RopeScaling::None,
            "linear" => RopeScaling::Linear {
                factor: need(self.factor, "factor")?,
            },
            "llama3" => RopeScaling::Llama3 {
                factor: need(self.factor, "factor")?,
                low: need(self.low_freq_factor, "low_freq_factor")?,
                high: need(self.high_freq_factor, "high_freq_factor")?,
                context: need(original, "original_max_position_embeddings")?,
            },
            "yarn" => {
                let factor = need(self.factor, "factor")?;
                RopeScaling::Yarn {
                    factor,
                    fast: self.beta_fast.unwrap_or(32.0),
                    slow: self.beta_slow.unwrap_or(1.0),
                    context: original.unwrap_or(context),
                    amplitude: self.attention_factor.unwrap_or(RopeScaling::yarn_amplitude(factor)),
                }
            }
            other => {
                return Err(unsupported(
                    "rope_type",
                    format!("'{other}'"),
                    "only default, linear, llama3 and yarn are",
                ));
            }
        })
    }
}

pub(super) fn unsupported(key: &str, value: String, instead: &'static str) -> SpecError {
    SpecError::Unsupported {
        key: key.into(),
        value,
        instead,
    }
}
