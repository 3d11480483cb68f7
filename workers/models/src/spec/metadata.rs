//! Reads the metadata of a GGUF file, and from its list of tensors what the metadata does not say.

use super::{
    AttentionSpec, ExpertsSpec, Family, FfnSpec, LayerSpec, ModelSpec, Norm, Rope, RopeScaling, RoutingSpec, SpecError,
    layer_count,
};
use crate::gguf::{FromValue, GgufFile};

/// Every sixth layer of a Gemma 3 file is a full one; the file does not say so.
const GEMMA_PATTERN: usize = 6;
/// The base of a Gemma 3 file's sliding layers; the file does not say so either.
const GEMMA_SLIDING_THETA: f64 = 10_000.0;

/// What a GGUF file describes.
pub fn from_gguf(file: &GgufFile) -> Result<ModelSpec, SpecError> {
    let architecture: &str = file.require("general.architecture")?;
    let family = Family::from_gguf(architecture)?;
    let keys = Keys { file, architecture };
    refuse_unsupported(&keys, family)?;
    let switches = family.switches();
    let hidden: usize = keys.require("embedding_length")?;
    let norm_epsilon = keys.require("attention.layer_norm_rms_epsilon")?;
    ModelSpec {
        family,
        hidden,
        vocabulary: vocabulary(&keys)?,
        context: keys.require("context_length")?,
        norm_epsilon,
        post_norm_epsilon: norm_epsilon,
        embedding_norm: false,
        logit_scale: 1.0,
        logit_cap: None,
        tied_head: file.tensor("output.weight").is_none(),
        embedding_scale: if switches.scaled_embedding {
            (hidden as f32).sqrt()
        } else {
            1.0
        },
        activation: switches.activation,
        layers: (0..layer_count("block_count", keys.require("block_count")?)?)
            .map(|layer| layer_spec(&keys, family, hidden, layer))
            .collect::<Result<_, _>>()?,
    }
    .checked()
}

/// The keys of one architecture.
struct Keys<'a> {
    file: &'a GgufFile,
    architecture: &'a str,
}

impl<'a> Keys<'a> {
    fn get<T: FromValue<'a>>(&self, key: &str) -> Result<Option<T>, SpecError> {
        Ok(self.file.get(&format!("{}.{key}", self.architecture))?)
    }

    fn require<T: FromValue<'a>>(&self, key: &str) -> Result<T, SpecError> {
        Ok(self.file.require(&format!("{}.{key}", self.architecture))?)
    }

    fn unsupported(&self, key: &str, value: impl ToString, instead: &'static str) -> SpecError {
        SpecError::Unsupported {
            key: format!("{}.{key}", self.architecture),
            value: value.to_string(),
            instead,
        }
    }
}

fn refuse_unsupported(keys: &Keys<'_>, family: Family) -> Result<(), SpecError> {
    if let Some(parts) = keys.file.get::<usize>("split.count")?
        && parts > 1
    {
        return Err(SpecError::Unsupported {
            key: "split.count".into(),
            value: parts.to_string(),
            instead: "merge the parts into one file first",
        });
    }
    if family != Family::Gemma3
        && let Some(window) = keys.get::<usize>("attention.sliding_window")?
        && window != 0
    {
        return Err(keys.unsupported("attention.sliding_window", window, "only gemma3 files may have one"));
    }
    for key in [
        "expert_shared_count",
        "attn_logit_softcapping",
        "final_logit_softcapping",
    ] {
        if let Some(value) = keys.get::<f32>(key)?
            && value != 0.0
        {
            return Err(keys.unsupported(key, value, "only 0 is"));
        }
    }
    Ok(())
}

fn vocabulary(keys: &Keys<'_>) -> Result<usize, SpecError> {
    if let Some(crate::gguf::Value::Array(tokens)) = keys.file.value("tokenizer.ggml.tokens")? {
        return Ok(tokens.len);
    }
    keys.require("vocab_size")
}

fn layer_spec(keys: &Keys<'_>, family: Family, hidden: usize, layer: usize) -> Result<LayerSpec, SpecError> {
    let switches = family.switches();
    let heads: usize = keys.require("attention.head_count")?;
    let head_dim = head_dim(keys, hidden, heads)?;
    let slides = family == Family::Gemma3 && !(layer + 1).is_multiple_of(GEMMA_PATTERN);
    let rope = if slides {
        Rope {
            theta: GEMMA_SLIDING_THETA,
            scaling: RopeScaling::None,
            divisors: false,
        }
    } else {
        rope(keys)?
    };
    Ok(LayerSpec {
        attention: AttentionSpec {
            heads,
            kv_heads: keys.get("attention.head_count_kv")?.unwrap_or(heads),
            head_dim,
            bias: switches.bias,
            head_norm: Norm::gain_if(switches.head_norm),
            output_norm: false,
            output_gate: false,
            scale: (head_dim as f64).powf(-0.5) as f32,
            window: if slides {
                Some(keys.require("attention.sliding_window")?)
            } else {
                None
            },
            rope: Some(rope),
        },
        ffn: ffn(keys, layer)?,
        post_attention: Norm::gain_if(switches.post_norms),
        post_ffn: Norm::gain_if(switches.post_norms),
        residual_gate: None,
    })
}

fn head_dim(keys: &Keys<'_>, hidden: usize, heads: usize) -> Result<usize, SpecError> {
    let head_dim = keys.get("attention.key_length")?.unwrap_or(hidden / heads.max(1));
    let value_length = keys.get("attention.value_length")?.unwrap_or(head_dim);
    if value_length != head_dim {
        return Err(keys.unsupported(
            "attention.value_length",
            value_length,
            "only values as wide as keys are",
        ));
    }
    let rotated = keys.get("rope.dimension_count")?.unwrap_or(head_dim);
    if rotated != head_dim {
        return Err(keys.unsupported("rope.dimension_count", rotated, "only rotation of whole heads is"));
    }
    Ok(head_dim)
}

fn rope(keys: &Keys<'_>) -> Result<Rope, SpecError> {
    Ok(Rope {
        theta: keys.get::<f32>("rope.freq_base")?.unwrap_or(10_000.0).into(),
        scaling: scaling(keys)?,
        divisors: keys.file.tensor("rope_freqs.weight").is_some(),
    })
}

fn scaling(keys: &Keys<'_>) -> Result<RopeScaling, SpecError> {
    let name = keys.get("rope.scaling.type")?.unwrap_or("none");
    let factor = || Ok::<f64, SpecError>(keys.require::<f32>("rope.scaling.factor")?.into());
    Ok(match name {
        "none" => RopeScaling::None,
        "linear" => RopeScaling::Linear { factor: factor()? },
        "yarn" => RopeScaling::Yarn {
            factor: factor()?,
            fast: 32.0,
            slow: 1.0,
            context: keys.require::<f32>("rope.scaling.original_context_length")?.into(),
            amplitude: RopeScaling::yarn_amplitude(factor()?),
        },
        other => return Err(keys.unsupported("rope.scaling.type", other, "only none, linear and yarn are")),
    })
}

/// A layer is a mixture where the file has a router for it. The formats' own runtimes always normalise the weights.
fn ffn(keys: &Keys<'_>, layer: usize) -> Result<FfnSpec, SpecError> {
    if keys.file.tensor(&format!("blk.{layer}.ffn_gate_inp.weight")).is_none() {
        return Ok(FfnSpec::Dense {
            width: keys.require("feed_forward_length")?,
        });
    }
    let width = match keys.get("expert_feed_forward_length")? {
        Some(width) => width,
        None => keys.require("feed_forward_length")?,
    };
    Ok(FfnSpec::Experts(ExpertsSpec {
        width,
        count: keys.require("expert_count")?,
        active: keys.require("expert_used_count")?,
        routing: RoutingSpec::Softmax { normalize: true },
        pool: None,
    }))
}
