//! Reads the configuration of Muse Spark: its language model's table among those of the towers. Everything it says becomes
//! an option of the table of layers.

use serde::Deserialize;
use serde_json::Value;

use super::{
    Activation, AttentionSpec, ExpertsSpec, Family, FfnSpec, LayerSpec, ModelSpec, Norm, Rope, RopeScaling,
    RoutingSpec, SpecError, config::unsupported, layer_count,
};

/// `text_config`. What is optional is as in the published model where it is missing; sizes are not optional.
#[derive(Deserialize)]
struct Text {
    hidden_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    num_key_value_heads: usize,
    head_dim: Option<usize>,
    vocab_size: usize,
    #[serde(default = "published::context")]
    max_position_embeddings: usize,
    #[serde(default = "published::epsilon")]
    rms_norm_eps: f64,
    #[serde(default = "published::post_epsilon")]
    post_norm_eps: f64,
    #[serde(default = "published::activation")]
    hidden_act: String,
    tie_word_embeddings: Option<bool>,
    attention_bias: Option<bool>,
    qk_scale_factor: Option<f64>,
    output_multiplier: Option<f64>,
    /// Null: there is none.
    #[serde(default = "published::cap")]
    final_logit_softcapping: Option<f64>,
    #[serde(default = "published::temperature")]
    residual_gate_temperature: f64,

    layer_types: Option<Vec<String>>,
    layer_rope_theta: Option<Vec<Option<f64>>>,
    rope_parameters: Option<RopeParameters>,
    rope_theta: Option<f64>,
    #[serde(default = "published::window")]
    sliding_window: Option<usize>,

    mlp_layer_types: Option<Vec<String>>,
    intermediate_size: Option<usize>,
    moe_hidden_size: Option<usize>,
    moe_intermediate_size: Option<usize>,
    #[serde(alias = "num_experts")]
    num_local_experts: Option<usize>,
    #[serde(default = "published::active")]
    num_experts_per_tok: usize,
    routed_scaling_factor: Option<f64>,
    n_shared_experts: Option<usize>,
}

/// What is said of all rotations together.
#[derive(Deserialize)]
struct RopeParameters {
    rope_type: Option<String>,
    rope_theta: Option<f64>,
}

/// What the published model has.
mod published {
    /// Layers from one global layer to the next; the last layer is global.
    pub(super) const PERIOD: usize = 4;
    pub(super) const THETA: f64 = 500_000.0;
    /// Of queries and keys; the factor is this by the root of the head's width.
    pub(super) const QUERY_KEY_SCALE: f64 = 43.784_051_891_1;
    /// The width at which logits are multiplied by one.
    pub(super) const LOGIT_WIDTH: f64 = 256.0;

    pub(super) fn context() -> usize {
        1 << 20
    }

    pub(super) fn epsilon() -> f64 {
        1e-5
    }

    pub(super) fn post_epsilon() -> f64 {
        1e-8
    }

    pub(super) fn activation() -> String {
        "silu".into()
    }

    #[expect(clippy::unnecessary_wraps, reason = "there may be none")]
    pub(super) fn cap() -> Option<f64> {
        Some(20.0)
    }

    pub(super) fn temperature() -> f64 {
        0.3
    }

    #[expect(clippy::unnecessary_wraps, reason = "there may be none")]
    pub(super) fn window() -> Option<usize> {
        Some(2048)
    }

    pub(super) fn active() -> usize {
        8
    }
}

/// What the `text_config` of a checkpoint describes, or where there is none, its words themselves.
pub(super) fn from_config(config: &Value) -> Result<ModelSpec, SpecError> {
    let text = match config.get("text_config") {
        Some(text) => Text::deserialize(text).map_err(|error| SpecError::Json(format!("'text_config': {error}"))),
        None => Text::deserialize(config).map_err(|error| SpecError::Json(error.to_string())),
    };
    let text = text?;
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
            logit_scale: self.output_multiplier() as f32,
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

    fn output_multiplier(&self) -> f64 {
        let published = || (published::LOGIT_WIDTH / self.hidden_size as f64).sqrt();
        self.output_multiplier.unwrap_or_else(published)
    }

    fn layer(&self, layer: usize) -> Result<LayerSpec, SpecError> {
        let even = self.hidden_size / self.num_attention_heads.max(1);
        let head_dim = self.head_dim.unwrap_or(even);
        let root = (head_dim as f64).sqrt();
        let factor = self.qk_scale_factor.unwrap_or(published::QUERY_KEY_SCALE / root);
        Ok(LayerSpec {
            attention: AttentionSpec {
                heads: self.num_attention_heads,
                kv_heads: self.num_key_value_heads,
                head_dim,
                bias: false,
                head_norm: Norm::Plain,
                output_norm: true,
                output_gate: true,
                scale: (factor / root) as f32,
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
        match self.is_local(layer)? {
            false => Ok(None),
            true => Ok(Some(need(self.sliding_window, "sliding_window")?)),
        }
    }

    fn is_local(&self, layer: usize) -> Result<bool, SpecError> {
        let types = ["full_attention", "sliding_attention"];
        match &self.layer_types {
            Some(list) => Ok(choice("layer_types", list, layer, types)? == 1),
            None => Ok(!(self.num_hidden_layers - 1 - layer).is_multiple_of(published::PERIOD)),
        }
    }

    /// By the base of the layer's rotation; 0 stands for none.
    fn rope(&self, layer: usize) -> Result<Option<Rope>, SpecError> {
        let theta = match &self.layer_rope_theta {
            Some(list) => *need(list.get(layer), &format!("layer_rope_theta[{layer}]"))?,
            None => self.is_local(layer)?.then(|| self.local_theta()),
        };
        Ok(theta.filter(|theta| *theta != 0.0).map(|theta| Rope {
            theta,
            scaling: RopeScaling::None,
            divisors: false,
        }))
    }

    /// The base of local layers, where layers have none of their own.
    fn local_theta(&self) -> f64 {
        let together = self.rope_parameters.as_ref().and_then(|rope| rope.rope_theta);
        together.or(self.rope_theta).unwrap_or(published::THETA)
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
            active: self.num_experts_per_tok,
            routing: RoutingSpec::Sigmoid {
                logit_scale: self.output_multiplier() as f32,
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
