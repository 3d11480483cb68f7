//! Reads the configuration of Muse Spark: its language model's table among those of the towers. Everything it says becomes
//! an option of the table of layers.

use serde::Deserialize;
use serde_json::Value;

use super::{
    Activation, AttentionSpec, ExpertsSpec, Family, FfnSpec, LayerSpec, ModelSpec, Norm, Rope, RopeScaling,
    RoutingSpec, SpecError, config::unsupported, layer_count,
};

/// `text_config`. What is not optional has no sensible default.
#[derive(Deserialize)]
struct Text {
    hidden_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    num_key_value_heads: usize,
    head_dim: usize,
    vocab_size: usize,
    max_position_embeddings: usize,
    rms_norm_eps: f64,
    post_norm_eps: f64,
    hidden_act: String,
    tie_word_embeddings: Option<bool>,
    attention_bias: Option<bool>,
    qk_scale_factor: f64,
    output_multiplier: f64,
    final_logit_softcapping: Option<f64>,
    residual_gate_temperature: f64,

    layer_types: Vec<String>,
    layer_rope_theta: Vec<Option<f64>>,
    rope_parameters: Option<RopeParameters>,
    sliding_window: Option<usize>,

    mlp_layer_types: Option<Vec<String>>,
    intermediate_size: Option<usize>,
    moe_hidden_size: Option<usize>,
    moe_intermediate_size: Option<usize>,
    #[serde(alias = "num_experts")]
    num_local_experts: Option<usize>,
    num_experts_per_tok: Option<usize>,
    routed_scaling_factor: Option<f64>,
    n_shared_experts: Option<usize>,
}

/// What is said of all rotations together.
#[derive(Deserialize)]
struct RopeParameters {
    rope_type: Option<String>,
}

/// What the `text_config` of a checkpoint describes.
pub(super) fn from_config(config: &Value) -> Result<ModelSpec, SpecError> {
    let text = config
        .get("text_config")
        .ok_or_else(|| SpecError::Missing("text_config".into()))?;
    let text = Text::deserialize(text).map_err(|error| SpecError::Json(format!("'text_config': {error}")))?;
    let tied = config.get("tie_word_embeddings").and_then(Value::as_bool);
    text.spec(tied.unwrap_or(false))
}

impl Text {
    /// `tied` holds where the table itself does not say it.
    fn spec(&self, tied: bool) -> Result<ModelSpec, SpecError> {
        self.refuse_unsupported()?;
        Ok(ModelSpec {
            family: Family::MuseSpark,
            hidden: self.hidden_size,
            vocabulary: self.vocab_size,
            context: self.max_position_embeddings,
            norm_epsilon: self.rms_norm_eps as f32,
            post_norm_epsilon: self.post_norm_eps as f32,
            tied_head: self.tie_word_embeddings.unwrap_or(tied),
            embedding_scale: 1.0,
            embedding_norm: true,
            logit_scale: self.output_multiplier as f32,
            logit_cap: self.final_logit_softcapping.map(|cap| cap as f32),
            activation: Activation::Silu,
            layers: (0..layer_count("num_hidden_layers", self.num_hidden_layers)?)
                .map(|layer| self.layer(layer))
                .collect::<Result<_, _>>()?,
        })
    }

    fn refuse_unsupported(&self) -> Result<(), SpecError> {
        if self.hidden_act != "silu" {
            return Err(unsupported(
                "hidden_act",
                format!("'{}'", self.hidden_act),
                "only silu is",
            ));
        }
        if self.attention_bias == Some(true) {
            return Err(unsupported("attention_bias", "true".into(), "only false is"));
        }
        if let Some(count @ 1..) = self.n_shared_experts {
            return Err(unsupported("n_shared_experts", count.to_string(), "only 0 is"));
        }
        let rope_type = self.rope_parameters.as_ref().and_then(|rope| rope.rope_type.as_deref());
        if let Some(other) = rope_type.filter(|rope_type| *rope_type != "default") {
            return Err(unsupported("rope_type", format!("'{other}'"), "only default is"));
        }
        let positive = [
            ("residual_gate_temperature", self.residual_gate_temperature),
            ("final_logit_softcapping", self.final_logit_softcapping.unwrap_or(1.0)),
        ];
        match positive.into_iter().find(|(_, value)| *value <= 0.0) {
            None => Ok(()),
            Some((key, value)) => Err(SpecError::Invalid {
                key: key.into(),
                value: value.to_string(),
                rule: "it must be more than 0".into(),
            }),
        }
    }

    fn layer(&self, layer: usize) -> Result<LayerSpec, SpecError> {
        Ok(LayerSpec {
            attention: AttentionSpec {
                heads: self.num_attention_heads,
                kv_heads: self.num_key_value_heads,
                head_dim: self.head_dim,
                bias: false,
                head_norm: Norm::Plain,
                output_norm: true,
                output_gate: true,
                scale: (self.qk_scale_factor / (self.head_dim as f64).sqrt()) as f32,
                window: self.window(layer)?,
                rope: self.rope(layer)?,
            },
            ffn: self.ffn(layer)?,
            post_attention: Norm::Plain,
            post_ffn: Norm::InputScaled,
            residual_gate: Some(self.residual_gate_temperature as f32),
        })
    }

    fn window(&self, layer: usize) -> Result<Option<usize>, SpecError> {
        let types = ["full_attention", "sliding_attention"];
        match choice("layer_types", &self.layer_types, layer, types)? {
            0 => Ok(None),
            _ => Ok(Some(need(self.sliding_window, "sliding_window")?)),
        }
    }

    /// By the base of the layer's rotation; 0 stands for none.
    fn rope(&self, layer: usize) -> Result<Option<Rope>, SpecError> {
        let theta = need(self.layer_rope_theta.get(layer), &format!("layer_rope_theta[{layer}]"))?;
        Ok(theta.filter(|theta| *theta != 0.0).map(|theta| Rope {
            theta,
            scaling: RopeScaling::None,
            divisors: false,
        }))
    }

    fn ffn(&self, layer: usize) -> Result<FfnSpec, SpecError> {
        let dense = match &self.mlp_layer_types {
            None => false,
            Some(types) => choice("mlp_layer_types", types, layer, ["sparse", "dense"])? == 1,
        };
        if dense {
            return Ok(FfnSpec::Dense {
                width: need(self.intermediate_size, "intermediate_size")?,
            });
        }
        Ok(FfnSpec::Experts(ExpertsSpec {
            width: need(self.moe_intermediate_size, "moe_intermediate_size")?,
            count: need(self.num_local_experts, "num_local_experts")?,
            active: need(self.num_experts_per_tok, "num_experts_per_tok")?,
            routing: RoutingSpec::Sigmoid {
                logit_scale: self.output_multiplier as f32,
                scale: self.routed_scaling_factor.unwrap_or(1.0) as f32,
            },
            pool: Some(need(self.moe_hidden_size, "moe_hidden_size")?),
        }))
    }
}

/// Which of `known` a list says for a layer.
fn choice(key: &str, list: &[String], layer: usize, known: [&str; 2]) -> Result<usize, SpecError> {
    let key = format!("{key}[{layer}]");
    let value = need(list.get(layer), &key)?;
    known
        .iter()
        .position(|known| known == value)
        .ok_or_else(|| SpecError::Invalid {
            key,
            value: format!("'{value}'"),
            rule: format!("it must be one of {}", known.join(", ")),
        })
}

fn need<T>(value: Option<T>, key: &str) -> Result<T, SpecError> {
    value.ok_or_else(|| SpecError::Missing(key.into()))
}
