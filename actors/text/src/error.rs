//! What can be wrong with a model's text files. Errors of a request are `cluster_messages::RequestError`.

/// Why a tokenizer or a template cannot be made from what the model brings.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TextError {
    /// A file does not parse.
    #[error("{file} cannot be read: {reason}")]
    File {
        /// Which one.
        file: &'static str,
        /// Where and why.
        reason: String,
    },
    /// `tokenizer.ggml.model` names a kind of tokenizer that is not built here.
    #[error("tokenizer.ggml.model is `{0}`; supported are gpt2 and llama; use the model's tokenizer.json instead")]
    Kind(String),
    /// `tokenizer.ggml.pre` names a rule for cutting text into words that is not built here.
    #[error("tokenizer.ggml.pre is `{found}`; supported are {supported}; use the model's tokenizer.json instead")]
    WordRule {
        /// What the file says.
        found: String,
        /// What would work.
        supported: String,
    },
    /// The decoder of tokenizer.json spells tokens in a way that is not built here.
    #[error("tokenizer.json spells tokens with the decoder {0}; supported are ByteLevel and the SentencePiece family")]
    Spelling(String),
    /// The lists of a vocabulary do not fit together.
    #[error("the vocabulary is broken: {0}")]
    Vocabulary(String),
    /// The chat template does not parse.
    #[error("the chat template cannot be used: {0}")]
    Template(String),
}
