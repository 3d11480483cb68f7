//! Language models of other shapes, and how each is written and asked.

use safetensors::Dtype;

use super::text;

const LOCAL: bool = true;
const GLOBAL: bool = false;
const DENSE: bool = true;
const SPARSE: bool = false;
const THETA: f64 = 500_000.0;

pub(super) fn base() -> text::Shape {
    text::Shape {
        prefix: "model.language_model.",
        vocabulary: 301,
        hidden: 96,
        heads: 4,
        kv_heads: 2,
        head_dim: 16,
        layers: vec![
            (LOCAL, DENSE, THETA),
            (GLOBAL, SPARSE, 0.0),
            (LOCAL, SPARSE, THETA),
            (GLOBAL, DENSE, 0.0),
        ],
        window: 5,
        dense_inner: 80,
        pooled: 40,
        inner: 24,
        experts: 6,
        chosen: 2,
        tied: false,
        eps: 1e-5,
        post_eps: 1e-8,
        qk_scale: 3.0,
        multiplier: (256.0f64 / 96.0).sqrt(),
        cap: Some(20.0),
        temperature: 0.3,
        routed_scale: 1.0,
    }
}

/// How a language model is written and asked.
pub(super) struct Way {
    pub(super) shape: text::Shape,
    pub(super) dtype: Dtype,
    pub(super) files: usize,
    /// Whether each expert has its own tensors.
    pub(super) named: bool,
    /// Whether the language model's words stand at the top.
    pub(super) flat: bool,
    /// Words that are left out.
    pub(super) missing: &'static [&'static str],
    pub(super) prompt: usize,
}

pub(super) fn plain(shape: text::Shape) -> Way {
    Way {
        shape,
        dtype: Dtype::F32,
        files: 1,
        named: false,
        flat: false,
        missing: &[],
        prompt: 40,
    }
}

pub(super) fn small_heads_and_a_window_of_one() -> Way {
    let shape = text::Shape {
        heads: 8,
        kv_heads: 8,
        head_dim: 8,
        layers: vec![(LOCAL, SPARSE, 10_000.0); 3],
        window: 1,
        tied: true,
        ..base()
    };
    Way {
        dtype: Dtype::BF16,
        ..plain(shape)
    }
}

pub(super) fn wide_heads_all_global() -> Way {
    let shape = text::Shape {
        heads: 3,
        kv_heads: 1,
        head_dim: 64,
        layers: vec![(GLOBAL, SPARSE, 0.0); 3],
        vocabulary: 97,
        experts: 5,
        chosen: 1,
        ..base()
    };
    Way {
        dtype: Dtype::F16,
        files: 3,
        ..plain(shape)
    }
}

pub(super) fn odd_widths_and_many_experts() -> Way {
    let shape = text::Shape {
        hidden: 50,
        heads: 6,
        kv_heads: 3,
        head_dim: 24,
        layers: vec![(LOCAL, SPARSE, THETA), (LOCAL, SPARSE, 100.0), (GLOBAL, SPARSE, 0.0)],
        vocabulary: 131,
        window: 100,
        pooled: 33,
        inner: 17,
        experts: 16,
        chosen: 4,
        multiplier: 0.7,
        ..base()
    };
    Way {
        prompt: 120,
        ..plain(shape)
    }
}

pub(super) fn a_single_expert_and_other_constants() -> Way {
    let shape = text::Shape {
        heads: 5,
        kv_heads: 5,
        head_dim: 10,
        layers: vec![(GLOBAL, DENSE, THETA), (LOCAL, SPARSE, 0.0), (LOCAL, SPARSE, THETA)],
        window: 16,
        experts: 1,
        chosen: 1,
        eps: 1e-2,
        post_eps: 1e-3,
        cap: None,
        temperature: 1.0,
        routed_scale: 2.5,
        ..base()
    };
    Way {
        named: true,
        files: 2,
        dtype: Dtype::BF16,
        ..plain(shape)
    }
}

/// The language model alone, as it is saved without its towers.
pub(super) fn dense_and_alone() -> Way {
    let shape = text::Shape {
        prefix: "model.",
        heads: 12,
        kv_heads: 4,
        head_dim: 40,
        layers: vec![(LOCAL, DENSE, THETA), (GLOBAL, DENSE, 0.0), (LOCAL, DENSE, THETA)],
        window: 16,
        dense_inner: 37,
        cap: Some(50.0),
        ..base()
    };
    Way {
        flat: true,
        missing: &[
            "moe_hidden_size",
            "moe_intermediate_size",
            "num_local_experts",
            "num_experts_per_tok",
        ],
        ..plain(shape)
    }
}

/// What can be left out is as in the published model. Its sharp attention makes much of small differences, so all is short.
pub(super) fn as_published() -> Way {
    let hidden: usize = 128;
    let head_dim: usize = 64;
    let layer = |index: usize| match (5 - 1 - index) % 4 {
        0 => (GLOBAL, SPARSE, 0.0),
        _ => (LOCAL, SPARSE, THETA),
    };
    let shape = text::Shape {
        hidden,
        heads: 2,
        kv_heads: 1,
        head_dim,
        layers: (0..5).map(layer).collect(),
        window: 2048,
        qk_scale: 5.473_006_486_387_5 * 8.0 / (head_dim as f64).sqrt(),
        multiplier: (256.0 / hidden as f64).sqrt(),
        experts: 9,
        chosen: 8,
        ..base()
    };
    Way {
        missing: &[
            "head_dim",
            "max_position_embeddings",
            "rms_norm_eps",
            "post_norm_eps",
            "hidden_act",
            "tie_word_embeddings",
            "attention_bias",
            "qk_scale_factor",
            "output_multiplier",
            "final_logit_softcapping",
            "residual_gate_temperature",
            "layer_types",
            "layer_rope_theta",
            "rope_parameters",
            "sliding_window",
            "mlp_layer_types",
            "intermediate_size",
            "num_experts_per_tok",
            "routed_scaling_factor",
            "model_type",
        ],
        prompt: 24,
        ..plain(shape)
    }
}
