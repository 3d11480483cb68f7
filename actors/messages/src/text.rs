//! Gateway → tokenizer: text in, text out.

use serde::{Deserialize, Serialize};

use crate::{FinishReason, Header, MediaFile, Sampling, Usage};

/// JSON kept as text: messages also travel in formats that cannot hold a JSON value.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct JsonText(pub String);

/// A validated request for text.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TextRequest {
    /// Request, deadline, trace.
    pub header: Header,
    /// The served name the client asked for.
    pub model: String,
    /// What to continue.
    pub input: TextInput,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// The most tokens of answer; none: what is left of the context.
    pub max_tokens: Option<u32>,
    /// No stop before this many tokens of answer.
    pub min_tokens: u32,
    /// Texts that end the answer and are not part of it.
    pub stop: Vec<String>,
    /// Further tokens that end the answer.
    pub stop_token_ids: Vec<u32>,
    /// Whether the model's own end tokens are ignored.
    pub ignore_eos: bool,
    /// Whether and which tools may be called.
    pub tool_choice: ToolChoice,
    /// Whether one answer may have several calls of tools; without it the answer ends with the first.
    pub parallel_tool_calls: bool,
    /// How many answers.
    pub choices: u32,
    /// Log-probabilities of answer tokens with this many alternatives.
    pub logprobs: Option<u8>,
    /// Whether the answer begins with the prompt (completions only). With `logprobs` the prompt's tokens get entries too.
    pub echo: bool,
    /// Separates prefix caches.
    pub cache_salt: String,
    /// Higher runs first.
    pub priority: i32,
}

/// What to continue.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum TextInput {
    /// A conversation, rendered by the model's template.
    Chat(ChatPrompt),
    /// Plain text; control tokens typed in it stay text.
    Text(String),
    /// Ready token ids.
    Tokens(Vec<u32>),
}

/// A conversation.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ChatPrompt {
    /// The messages, oldest first.
    pub messages: Vec<ChatMessage>,
    /// Tool definitions, a JSON array.
    pub tools: Option<JsonText>,
    /// How hard the model should think, as the client named it; none: what the template does without it.
    pub reasoning_effort: Option<String>,
    /// Further template variables, a JSON object.
    pub template_args: Option<JsonText>,
    /// Whether the last message is to be continued instead of answered.
    pub continue_final: bool,
}

/// One message.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ChatMessage {
    /// `system`, `user`, `assistant`, `tool`, …
    pub role: String,
    /// What was said; none for a message that only calls tools.
    pub content: Option<Content>,
    /// The speaker's name.
    pub name: Option<String>,
    /// The thinking before the content.
    pub reasoning: Option<String>,
    /// The calls an assistant made.
    pub tool_calls: Vec<ToolCall>,
    /// Which call a tool message answers.
    pub tool_call_id: Option<String>,
}

/// A message's content.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Content {
    /// A string.
    Text(String),
    /// Typed parts; text parts are joined with nothing in between.
    Parts(Vec<Part>),
}

/// One typed part.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Part {
    /// Text.
    Text(String),
    /// A picture or a sound.
    Media(MediaFile),
}

/// Whether and which tools may be called.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum ToolChoice {
    /// As the model likes.
    #[default]
    Auto,
    /// None: what looks like a call is text.
    None,
    /// At least one.
    Required,
    /// This one.
    Named(String),
}

/// A call an assistant made.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ToolCall {
    /// Its id.
    pub id: String,
    /// The function.
    pub name: String,
    /// Its arguments, a JSON object.
    pub arguments: JsonText,
}

/// What a tokenizer answers, in this order: `Admitted`, then per choice `Delta`s and one `Finished` (choices interleave),
/// then `Usage`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum TextFrame {
    /// Every choice has its place; nothing was refused.
    Admitted {
        /// Tokens of the prompt.
        prompt_tokens: u32,
    },
    /// More text of one choice.
    Delta {
        /// Which choice.
        choice: u32,
        /// Which of the answer's channels.
        channel: Channel,
        /// Whole characters only.
        text: String,
        /// Tokens behind this text since the last delta, when log-probabilities were asked for.
        logprobs: Vec<TextLogprob>,
        /// How many tokens of answer this choice has by now.
        tokens: u32,
    },
    /// More of a call of a tool.
    ToolCall {
        /// Which choice.
        choice: u32,
        /// Which call of this choice, counted from 0.
        index: u32,
        /// Its id and name; with the first frame of a call only.
        head: Option<ToolHead>,
        /// More of its arguments, JSON in pieces.
        arguments: String,
        /// Tokens behind this frame since the last one, when log-probabilities were asked for.
        logprobs: Vec<TextLogprob>,
        /// How many tokens of answer this choice has by now.
        tokens: u32,
    },
    /// One choice ended.
    Finished {
        /// Which choice.
        choice: u32,
        /// Why.
        reason: FinishReason,
    },
    /// The request ended; totals over all choices.
    Usage(Usage),
}

/// A token with its text and log-probability.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TextLogprob {
    /// The token.
    pub id: u32,
    /// Its bytes; not necessarily whole characters.
    pub bytes: Vec<u8>,
    /// Natural log-probability; none for the first token of a prompt.
    pub logprob: Option<f32>,
    /// Alternatives, falling: token, bytes, log-probability.
    pub top: Vec<(u32, Vec<u8>, f32)>,
}

/// Where text of an answer belongs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub enum Channel {
    /// What the client asked for.
    #[default]
    Content,
    /// The thinking before it.
    Reasoning,
}

/// Which call of a tool begins.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ToolHead {
    /// Its id, unique in the answer.
    pub id: String,
    /// The function.
    pub name: String,
}
