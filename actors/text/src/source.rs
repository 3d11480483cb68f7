//! What a model brings to make a tokenizer of, handed in as plain values: this crate reads no files.

mod gguf;
mod json;
mod scores;

use tokenizers::{ModelWrapper, NormalizerWrapper, PreTokenizerWrapper};

use crate::{TextError, added::Added, vocabulary::Entry};

/// Where a tokenizer comes from.
#[derive(Clone, Debug)]
pub enum TokenizerSource {
    /// Files as they lie in a Hugging Face repository.
    Json(JsonFiles),
    /// The `tokenizer.*` keys of a GGUF file.
    Vocabulary(GgufVocabulary),
}

/// The contents of the files of a Hugging Face repository that concern text.
#[derive(Clone, Debug, Default)]
pub struct JsonFiles {
    /// `tokenizer.json`.
    pub tokenizer: Vec<u8>,
    /// `tokenizer_config.json`: special tokens by name, and in older repositories the chat template.
    pub tokenizer_config: Option<Vec<u8>>,
    /// `chat_template.jinja`.
    pub chat_template: Option<String>,
    /// `generation_config.json`: the ids that end an answer.
    pub generation_config: Option<Vec<u8>>,
}

/// The `tokenizer.*` keys of a GGUF file. Each field says which one; what a file lacks is left empty.
#[derive(Clone, Debug, Default)]
pub struct GgufVocabulary {
    /// `tokenizer.ggml.model`: `gpt2` (byte-level) or `llama` (SentencePiece).
    pub model: String,
    /// `tokenizer.ggml.pre`: how a byte-level tokenizer cuts words.
    pub pre: Option<String>,
    /// `tokenizer.ggml.tokens`.
    pub tokens: Vec<String>,
    /// `tokenizer.ggml.merges`, two tokens with a blank between, best first.
    pub merges: Vec<String>,
    /// `tokenizer.ggml.scores`.
    pub scores: Vec<f32>,
    /// `tokenizer.ggml.token_type`: 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte.
    pub token_types: Vec<u32>,
    /// `tokenizer.ggml.bos_token_id`.
    pub bos: Option<u32>,
    /// `tokenizer.ggml.eos_token_id`.
    pub eos: Option<u32>,
    /// `tokenizer.ggml.eot_token_id`.
    pub eot: Option<u32>,
    /// `tokenizer.ggml.eom_token_id`.
    pub eom: Option<u32>,
    /// `tokenizer.ggml.unknown_token_id`.
    pub unknown: Option<u32>,
    /// `tokenizer.ggml.padding_token_id`.
    pub padding: Option<u32>,
    /// `tokenizer.ggml.add_bos_token`.
    pub add_bos: Option<bool>,
    /// `tokenizer.ggml.add_space_prefix`.
    pub add_space_prefix: Option<bool>,
    /// `tokenizer.chat_template`.
    pub chat_template: Option<String>,
}

impl GgufVocabulary {
    /// A vocabulary of single bytes (ids 0 to 255) and then `controls`, of which the first ends an answer: the language of
    /// models without weights, in which every text has exactly as many tokens as bytes.
    pub fn of_bytes(controls: &[&str], chat_template: &str) -> Self {
        let bytes = crate::byte_level::alphabet().map(String::from);
        let control_types = controls.iter().map(|_| 3);
        Self {
            model: "gpt2".into(),
            tokens: bytes
                .into_iter()
                .chain(controls.iter().map(ToString::to_string))
                .collect(),
            token_types: [1; 256].into_iter().chain(control_types).collect(),
            eos: Some(256),
            chat_template: Some(chat_template.into()),
            ..Self::default()
        }
    }
}

/// A source, understood.
pub(crate) struct Parts {
    pub(crate) model: ModelWrapper,
    pub(crate) normalizer: Option<NormalizerWrapper>,
    pub(crate) pre_tokenizer: Option<PreTokenizerWrapper>,
    pub(crate) added: Vec<Added>,
    /// By id.
    pub(crate) entries: Vec<Entry>,
    /// Decoding drops a blank at the very beginning, because encoding puts one there.
    pub(crate) begins_with_blank: bool,
    pub(crate) bos: Option<u32>,
    /// What a plain text begins with.
    pub(crate) prefix: Vec<u32>,
    /// Sorted.
    pub(crate) eos: Vec<u32>,
    pub(crate) chat_template: Option<String>,
    /// Names of templates' variables (`bos_token`, …) with the token's text.
    pub(crate) named_tokens: Vec<(String, String)>,
}

impl Parts {
    pub(crate) fn new(source: TokenizerSource) -> Result<Self, TextError> {
        match source {
            TokenizerSource::Json(files) => json::parts(&files),
            TokenizerSource::Vocabulary(vocabulary) => gguf::parts(vocabulary),
        }
    }
}

/// Turns the spelling of SentencePiece into bytes: `▁` is a blank, `<0x0A>` the byte 10.
fn sentence_piece_bytes(token: &str) -> Vec<u8> {
    match byte_token(token) {
        Some(byte) => vec![byte],
        None => token.replace('▁', " ").into_bytes(),
    }
}

/// The byte of a token such as `<0x0A>`.
fn byte_token(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    if digits.len() != 2 {
        return None;
    }
    u8::from_str_radix(digits, 16).ok()
}
