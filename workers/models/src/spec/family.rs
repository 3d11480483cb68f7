//! The families of decoders and the switches in which they differ. A new family of this kind is a row here.

use super::{Activation, SpecError};

/// A family of models that share a configuration format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    /// Llama 2 and 3, SmolLM2.
    Llama,
    /// Qwen 2 and 2.5.
    Qwen2,
    /// Qwen 3, dense.
    Qwen3,
    /// Qwen 3, mixture of experts.
    Qwen3Moe,
    /// Gemma 3, text only.
    Gemma3,
    /// Muse Spark; the towers for pictures and sounds are models of their own.
    MuseSpark,
}

/// What a family's members have in common.
pub(super) struct Switches {
    pub(super) family: Family,
    /// `model_type` in config.json.
    pub(super) config_name: &'static str,
    /// `general.architecture` in a GGUF file; `None`: there are no such files.
    pub(super) gguf_name: Option<&'static str>,
    pub(super) bias: bool,
    pub(super) head_norm: bool,
    pub(super) post_norms: bool,
    /// Embeddings are multiplied by the square root of the width.
    pub(super) scaled_embedding: bool,
    pub(super) activation: Activation,
    /// GGUF files hold the rows of query and key heads in pairs (0, d/2, 1, d/2 + 1, …).
    pub(super) gguf_pairs: bool,
    /// Files other than GGUF hold norm weights minus 1.
    pub(super) norms_minus_one: bool,
    /// As `norms_minus_one`, for the norm before the head.
    pub(super) final_norm_minus_one: bool,
    /// The language model is one of several parts of a checkpoint, under a name of its own.
    pub(super) nested: bool,
}

const PLAIN: Switches = Switches {
    family: Family::Llama,
    config_name: "llama",
    gguf_name: Some("llama"),
    bias: false,
    head_norm: false,
    post_norms: false,
    scaled_embedding: false,
    activation: Activation::Silu,
    gguf_pairs: false,
    norms_minus_one: false,
    final_norm_minus_one: false,
    nested: false,
};

static FAMILIES: [Switches; 6] = [
    Switches {
        gguf_pairs: true,
        ..PLAIN
    },
    Switches {
        family: Family::Qwen2,
        config_name: "qwen2",
        gguf_name: Some("qwen2"),
        bias: true,
        ..PLAIN
    },
    Switches {
        family: Family::Qwen3,
        config_name: "qwen3",
        gguf_name: Some("qwen3"),
        head_norm: true,
        ..PLAIN
    },
    Switches {
        family: Family::Qwen3Moe,
        config_name: "qwen3_moe",
        gguf_name: Some("qwen3moe"),
        head_norm: true,
        ..PLAIN
    },
    Switches {
        family: Family::Gemma3,
        config_name: "gemma3_text",
        gguf_name: Some("gemma3"),
        head_norm: true,
        post_norms: true,
        scaled_embedding: true,
        activation: Activation::GeluTanh,
        norms_minus_one: true,
        final_norm_minus_one: true,
        ..PLAIN
    },
    Switches {
        family: Family::MuseSpark,
        config_name: "muse_spark",
        gguf_name: None,
        norms_minus_one: true,
        nested: true,
        ..PLAIN
    },
];

impl Family {
    pub(super) fn switches(self) -> &'static Switches {
        &FAMILIES[self as usize]
    }

    /// Its name in config.json.
    pub fn name(self) -> &'static str {
        self.switches().config_name
    }

    /// Whether GGUF files hold the rows of query and key heads in pairs (0, d/2, 1, d/2 + 1, …).
    pub(crate) fn gguf_pairs(self) -> bool {
        self.switches().gguf_pairs
    }

    /// Whether files other than GGUF hold norm weights minus 1.
    pub(crate) fn norms_minus_one(self) -> bool {
        self.switches().norms_minus_one
    }

    /// Whether files other than GGUF hold the weights of the norm before the head minus 1.
    pub(crate) fn final_norm_minus_one(self) -> bool {
        self.switches().final_norm_minus_one
    }

    /// Whether the language model is one of several parts of a checkpoint.
    pub(crate) fn nested(self) -> bool {
        self.switches().nested
    }

    pub(super) fn from_config(name: &str) -> Result<Self, SpecError> {
        // A language model of several parts that is saved alone adds a word to the name.
        let whole = name.strip_suffix("_text").unwrap_or(name);
        let row = FAMILIES.iter().find(|row| row.nested && row.config_name == whole);
        match row {
            Some(row) => Ok(row.family),
            None => find("model_type", name, |row| Some(row.config_name)),
        }
    }

    pub(super) fn from_gguf(name: &str) -> Result<Self, SpecError> {
        find("general.architecture", name, |row| row.gguf_name)
    }
}

fn find(key: &'static str, name: &str, of: fn(&Switches) -> Option<&'static str>) -> Result<Family, SpecError> {
    let row = FAMILIES.iter().find(|row| of(row) == Some(name));
    row.map(|row| row.family).ok_or_else(|| SpecError::Family {
        key,
        name: name.into(),
        supported: FAMILIES.iter().filter_map(of).collect::<Vec<_>>().join(", "),
    })
}
