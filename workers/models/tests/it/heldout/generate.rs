//! Descriptions and random weights for a shape.

use safetensors::Dtype;
use serde_json::{Map, Value, json};

use super::{audio, checkpoint::Checkpoint, text, vision};

/// How far logits spread, before the cap.
const LOGIT_SPREAD: f64 = 4.0;

/// A language model of this shape. `written` are the words of its description, of which some may be missing.
pub(crate) fn text(shape: &text::Shape, written: Value, dtype: Dtype, seed: u64) -> Checkpoint {
    let mut model = Checkpoint::new(written, seed);
    let name = |rest: &str| format!("{}{rest}", shape.prefix);
    let (hidden, query, kv) = (
        shape.hidden,
        shape.heads * shape.head_dim,
        shape.kv_heads * shape.head_dim,
    );
    let after_norm = LOGIT_SPREAD / shape.multiplier / (hidden as f64).sqrt();
    model.add(
        &name("embed_tokens.weight"),
        &[shape.vocabulary, hidden],
        after_norm,
        dtype,
    );
    if !shape.tied {
        model.add("lm_head.weight", &[shape.vocabulary, hidden], after_norm, dtype);
    }
    model.gains(&name("norm.weight"), hidden, dtype);
    for (layer, (_, dense, _)) in shape.layers.iter().enumerate() {
        let of = |part: &str| name(&format!("layers.{layer}.{part}"));
        for norm in ["input", "pre_feedforward", "post_feedforward"] {
            model.add(&of(&format!("{norm}_layernorm.weight")), &[hidden], 0.2, dtype);
        }
        for gate in ["post_attention", "post_feedforward"] {
            model.add(&of(&format!("{gate}_residual_gate.gate")), &[hidden], 0.4, Dtype::F32);
        }
        for (part, rows, cols) in [
            ("q", query, hidden),
            ("k", kv, hidden),
            ("v", kv, hidden),
            ("gate", query, hidden),
            ("o", hidden, query),
        ] {
            model.matrix(&of(&format!("self_attn.{part}_proj.weight")), [rows, cols], dtype);
        }
        if *dense {
            for (part, rows, cols) in [
                ("gate", shape.dense_inner, hidden),
                ("up", shape.dense_inner, hidden),
                ("down", hidden, shape.dense_inner),
            ] {
                model.matrix(&of(&format!("mlp.{part}_proj.weight")), [rows, cols], dtype);
            }
            continue;
        }
        let (experts, inner, pooled) = (shape.experts, shape.inner, shape.pooled);
        model.add(&of("mlp.gate.weight"), &[experts, hidden], after_norm / 2.0, Dtype::F32);
        model.add(&of("mlp.gate.e_score_correction_bias"), &[experts], 0.2, Dtype::F32);
        model.matrix(&of("mlp.pre_expert_proj.weight"), [pooled, hidden], dtype);
        model.matrix(&of("mlp.post_expert_proj.weight"), [hidden, pooled], dtype);
        model.add(&of("mlp.pre_expert_norm.weight"), &[pooled], 0.2, dtype);
        model.add(&of("mlp.experts.post_expert_norm.weight"), &[pooled], 0.2, dtype);
        let spread = |cols: usize| (cols as f64).powf(-0.5);
        model.add(
            &of("mlp.experts.gate_up_proj"),
            &[experts, 2 * inner, pooled],
            spread(pooled),
            dtype,
        );
        model.add(
            &of("mlp.experts.down_proj"),
            &[experts, pooled, inner],
            spread(inner),
            dtype,
        );
    }
    model
}

/// The words for a language model of this shape, all of them.
pub(crate) fn text_words(shape: &text::Shape) -> Map<String, Value> {
    let list = |of: &dyn Fn(&(bool, bool, f64)) -> Value| shape.layers.iter().map(of).collect::<Vec<Value>>();
    let words = json!({
        "model_type": "muse_spark_text",
        "hidden_size": shape.hidden,
        "num_hidden_layers": shape.layers.len(),
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "vocab_size": shape.vocabulary,
        "max_position_embeddings": 4096,
        "rms_norm_eps": shape.eps,
        "post_norm_eps": shape.post_eps,
        "hidden_act": "silu",
        "tie_word_embeddings": shape.tied,
        "attention_bias": false,
        "qk_scale_factor": shape.qk_scale,
        "output_multiplier": shape.multiplier,
        "final_logit_softcapping": shape.cap,
        "residual_gate_temperature": shape.temperature,
        "layer_types": list(&|(local, ..)| json!(if *local { "sliding_attention" } else { "full_attention" })),
        "layer_rope_theta": list(&|(.., theta)| json!(theta)),
        "rope_parameters": { "rope_type": "default", "rope_theta": 500_000.0 },
        "sliding_window": shape.window,
        "mlp_layer_types": list(&|(_, dense, _)| json!(if *dense { "dense" } else { "sparse" })),
        "intermediate_size": shape.dense_inner,
        "moe_hidden_size": shape.pooled,
        "moe_intermediate_size": shape.inner,
        "num_local_experts": shape.experts,
        "num_experts_per_tok": shape.chosen,
        "routed_scaling_factor": shape.routed_scale,
    });
    words.as_object().unwrap().clone()
}

/// Adds a vision tower.
pub(crate) fn vision(model: &mut Checkpoint, shape: &vision::Shape, dtype: Dtype) {
    let width = shape.width;
    let tower = "model.vision_tower";
    let patch = shape.frames * 3 * shape.patch * shape.patch;
    model.matrix(
        &format!("{tower}.patch_embedder.patch_embedding.weight"),
        [width, patch],
        dtype,
    );
    let entries = shape.table[0] * shape.table[1];
    let positions = format!("{tower}.patch_embedder.position_embedding_table.weight");
    model.add(&positions, &[entries, width], 0.7, dtype);
    let norm = |model: &mut Checkpoint, name: &str| {
        model.gains(&format!("{name}.weight"), width, dtype);
        model.add(&format!("{name}.bias"), &[width], 0.2, dtype);
    };
    norm(model, &format!("{tower}.ln_pre"));
    norm(model, &format!("{tower}.ln_post"));
    for layer in 0..shape.full.len() {
        let of = |part: &str| format!("{tower}.layers.{layer}.{part}");
        norm(model, &of("norm1"));
        norm(model, &of("norm2"));
        for part in ["attn.q_proj", "attn.k_proj", "attn.v_proj", "attn.proj"] {
            linear(model, &of(part), [width, width], dtype);
        }
        linear(model, &of("mlp.fc1"), [shape.inner, width], dtype);
        linear(model, &of("mlp.fc2"), [width, shape.inner], dtype);
    }
    let merged = width * shape.merge * shape.merge;
    model.matrix("model.vision_adapter.fc1.weight", [shape.adapter, merged], dtype);
    model.matrix("model.vision_adapter.fc2.weight", [shape.adapter, shape.adapter], dtype);
    model.matrix(
        "model.vision_projection.weight",
        [shape.text_width, shape.adapter],
        dtype,
    );
}

/// The words for a vision tower of this shape, all of them.
pub(crate) fn vision_words(shape: &vision::Shape) -> Map<String, Value> {
    let types = shape
        .full
        .iter()
        .map(|full| if *full { "full_attention" } else { "window_attention" });
    let words = json!({
        "model_type": "muse_spark_vision",
        "hidden_size": shape.width,
        "intermediate_size": shape.inner,
        "num_attention_heads": shape.heads,
        "num_hidden_layers": shape.full.len(),
        "layer_types": types.collect::<Vec<_>>(),
        "patch_size": shape.patch,
        "patch_temporal": shape.frames,
        "merge_size": shape.merge,
        "pos_emb_height": shape.table[0],
        "pos_emb_width": shape.table[1],
        "layer_norm_eps": shape.eps,
        "hidden_act": "gelu",
        "rope_parameters": { "rope_type": "axial", "rope_theta": shape.theta },
    });
    words.as_object().unwrap().clone()
}

/// Adds an audio tower.
pub(crate) fn audio(model: &mut Checkpoint, shape: &audio::Shape, text_width: usize, dtype: Dtype) {
    let tower = "model.audio_tower";
    let mut before = 1;
    for (s, (patch, width, blocks)) in shape.stages.iter().enumerate() {
        let of = |part: &str| format!("{tower}.layers.{s}.{part}");
        linear(model, &of("patch_embedder.proj"), [*width, patch * before], dtype);
        model.gains(&of("patch_embedder.norm.weight"), *width, dtype);
        for b in 0..*blocks {
            let of = |part: &str| of(&format!("conv_blocks.{b}.{part}"));
            model.add(&of("conv.weight"), &[*width, 1, shape.taps], 0.5, dtype);
            model.add(&of("conv.bias"), &[*width], 0.2, dtype);
            model.gains(&of("norm.weight"), *width, dtype);
            let inner = (*width as f64 * shape.ratio) as usize;
            linear(model, &of("mlp.fc1"), [inner, *width], dtype);
            linear(model, &of("mlp.fc2"), [*width, inner], dtype);
        }
        before = *width;
    }
    model.gains(&format!("{tower}.norm.weight"), before, dtype);
    linear(model, &format!("{tower}.proj"), [text_width, before], dtype);
    model.gains(&format!("{tower}.post_proj_norm.weight"), text_width, dtype);
}

/// The words for an audio tower of this shape, all of them.
pub(crate) fn audio_words(shape: &audio::Shape) -> Map<String, Value> {
    let each = |of: &dyn Fn(&(usize, usize, usize)) -> usize| shape.stages.iter().map(of).collect::<Vec<_>>();
    let words = json!({
        "model_type": "muse_spark_audio",
        "patch_sizes": each(&|(patch, ..)| *patch),
        "hidden_sizes": each(&|(_, width, _)| *width),
        "depths": each(&|(.., blocks)| *blocks),
        "mlp_ratio": shape.ratio,
        "conv_kernel_size": shape.taps,
        "rms_norm_eps": shape.eps,
        "hidden_act": "gelu",
    });
    words.as_object().unwrap().clone()
}

fn linear(model: &mut Checkpoint, name: &str, shape: [usize; 2], dtype: Dtype) {
    model.matrix(&format!("{name}.weight"), shape, dtype);
    model.add(&format!("{name}.bias"), &shape[..1], 0.2, dtype);
}
