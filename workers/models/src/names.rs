//! What the parts of a layer are called in files. A part is a row with its two names.

/// A tensor of a layer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    AttentionNorm,
    Query,
    Key,
    Value,
    QueryNorm,
    KeyNorm,
    AttentionOutput,
    PostAttentionNorm,
    FfnNorm,
    Gate,
    Up,
    Down,
    PostFfnNorm,
    Router,
    ExpertGate,
    ExpertUp,
    ExpertDown,
    OutputGate,
    AttentionResidual,
    FfnResidual,
    PreExpert,
    PreExpertNorm,
    PostExpert,
    PostExpertNorm,
}

/// How a file calls its tensors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Naming {
    Gguf,
    /// Where a layer has norms behind its parts, the name of the norm before the second part is another one.
    HuggingFace {
        post_norms: bool,
        /// The language model is one of several parts.
        nested: bool,
    },
}

impl Naming {
    pub(crate) fn embedding(self) -> &'static str {
        match self {
            Naming::HuggingFace { nested: true, .. } => "model.language_model.embed_tokens.weight",
            _ => self.pick("token_embd.weight", "model.embed_tokens.weight"),
        }
    }

    pub(crate) fn final_norm(self) -> &'static str {
        match self {
            Naming::HuggingFace { nested: true, .. } => "model.language_model.norm.weight",
            _ => self.pick("output_norm.weight", "model.norm.weight"),
        }
    }

    pub(crate) fn head(self) -> &'static str {
        self.pick("output.weight", "lm_head.weight")
    }

    /// The divisors of the angles, a tensor of GGUF only.
    pub(crate) fn rope_divisors(self) -> &'static str {
        self.pick("rope_freqs.weight", "")
    }

    pub(crate) fn weight(self, layer: usize, part: Part) -> String {
        self.tensor(layer, part, "weight")
    }

    pub(crate) fn bias(self, layer: usize, part: Part) -> String {
        self.tensor(layer, part, "bias")
    }

    /// One expert's matrix, where each has its own tensor.
    pub(crate) fn expert(self, layer: usize, expert: usize, part: Part) -> String {
        self.weight(layer, part).replace('#', &expert.to_string())
    }

    /// The gate of each channel of the residual stream, behind attention or behind the feed-forward part.
    pub(crate) fn residual_gate(self, layer: usize, part: Part) -> String {
        self.tensor(layer, part, "gate")
    }

    /// What is added to the experts' numbers for the choice.
    pub(crate) fn router_bias(self, layer: usize) -> String {
        self.tensor(layer, Part::Router, "e_score_correction_bias")
    }

    /// The tensors of all experts together, where a file has them: gates above ups, and downs.
    pub(crate) fn stacked_experts(self, layer: usize) -> [String; 2] {
        ["gate_up_proj", "down_proj"].map(|kind| format!("{}.{kind}", self.experts(layer)))
    }

    /// What all tensors of a layer's experts are called first, in safetensors files.
    pub(crate) fn experts(self, layer: usize) -> String {
        format!("{}.mlp.experts", self.layer(layer))
    }

    /// Whether a tensor of a file with these names is none of the language model's business: the angles of the rotation,
    /// which the description determines; scales for activations and caches in formats that are not used; other parts.
    pub(crate) fn skips(self, name: &str) -> bool {
        const ENDS: [&str; 5] = ["rotary_emb.inv_freq", ".q_scale", ".k_scale", ".v_scale", "input_scale"];
        const PARTS: [&str; 4] = [
            "model.vision_tower.",
            "model.vision_adapter.",
            "model.vision_projection.",
            "model.audio_tower.",
        ];
        let nested = matches!(self, Naming::HuggingFace { nested: true, .. });
        ENDS.iter().any(|end| name.ends_with(end)) || nested && PARTS.iter().any(|part| name.starts_with(part))
    }

    fn tensor(self, layer: usize, part: Part, kind: &str) -> String {
        let part = match self {
            Naming::Gguf => part.gguf(),
            Naming::HuggingFace { post_norms, .. } => part.hugging_face(post_norms),
        };
        format!("{}.{part}.{kind}", self.layer(layer))
    }

    fn layer(self, layer: usize) -> String {
        match self {
            Naming::Gguf => format!("blk.{layer}"),
            Naming::HuggingFace { nested: false, .. } => format!("model.layers.{layer}"),
            Naming::HuggingFace { nested: true, .. } => format!("model.language_model.layers.{layer}"),
        }
    }

    fn pick(self, gguf: &'static str, hugging_face: &'static str) -> &'static str {
        match self {
            Naming::Gguf => gguf,
            Naming::HuggingFace { .. } => hugging_face,
        }
    }
}

impl Part {
    fn gguf(self) -> &'static str {
        match self {
            Part::AttentionNorm => "attn_norm",
            Part::Query => "attn_q",
            Part::Key => "attn_k",
            Part::Value => "attn_v",
            Part::QueryNorm => "attn_q_norm",
            Part::KeyNorm => "attn_k_norm",
            Part::AttentionOutput => "attn_output",
            Part::PostAttentionNorm => "post_attention_norm",
            Part::FfnNorm => "ffn_norm",
            Part::Gate => "ffn_gate",
            Part::Up => "ffn_up",
            Part::Down => "ffn_down",
            Part::PostFfnNorm => "post_ffw_norm",
            Part::Router => "ffn_gate_inp",
            Part::ExpertGate => "ffn_gate_exps",
            Part::ExpertUp => "ffn_up_exps",
            Part::ExpertDown => "ffn_down_exps",
            // No file of this kind has them.
            Part::OutputGate
            | Part::AttentionResidual
            | Part::FfnResidual
            | Part::PreExpert
            | Part::PreExpertNorm
            | Part::PostExpert
            | Part::PostExpertNorm => "",
        }
    }

    fn hugging_face(self, post_norms: bool) -> &'static str {
        match self {
            Part::AttentionNorm => "input_layernorm",
            Part::Query => "self_attn.q_proj",
            Part::Key => "self_attn.k_proj",
            Part::Value => "self_attn.v_proj",
            Part::QueryNorm => "self_attn.q_norm",
            Part::KeyNorm => "self_attn.k_norm",
            Part::AttentionOutput => "self_attn.o_proj",
            Part::FfnNorm if post_norms => "pre_feedforward_layernorm",
            Part::FfnNorm | Part::PostAttentionNorm => "post_attention_layernorm",
            Part::Gate => "mlp.gate_proj",
            Part::Up => "mlp.up_proj",
            Part::Down => "mlp.down_proj",
            Part::PostFfnNorm => "post_feedforward_layernorm",
            Part::Router => "mlp.gate",
            Part::ExpertGate => "mlp.experts.#.gate_proj",
            Part::ExpertUp => "mlp.experts.#.up_proj",
            Part::ExpertDown => "mlp.experts.#.down_proj",
            Part::OutputGate => "self_attn.gate_proj",
            Part::AttentionResidual => "post_attention_residual_gate",
            Part::FfnResidual => "post_feedforward_residual_gate",
            Part::PreExpert => "mlp.pre_expert_proj",
            Part::PreExpertNorm => "mlp.pre_expert_norm",
            Part::PostExpert => "mlp.post_expert_proj",
            Part::PostExpertNorm => "mlp.experts.post_expert_norm",
        }
    }
}
