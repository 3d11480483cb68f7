//! Tokenizer → decode → prefill: token ids in, token ids out.

use serde::{Deserialize, Serialize};

use crate::{Header, InstanceRef, Medium, TraceContext, blocks::Fingerprint};

/// How a token is chosen from its logits. The defaults sample the model's own distribution.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Sampling {
    /// Divides the logits; 0 takes the best token.
    pub temperature: f32,
    /// Keeps the `top_k` best tokens; 0 keeps all.
    pub top_k: u32,
    /// Keeps the smallest set of best tokens whose probabilities add up to `top_p`; 1 keeps all.
    pub top_p: f32,
    /// Drops tokens less likely than `min_p` times the best one; 0 drops none.
    pub min_p: f32,
    /// What makes repeated tokens less likely.
    pub penalties: Penalties,
    /// Added to the logits of these tokens, sorted by id.
    pub logit_bias: Vec<(u32, f32)>,
    /// With the position it keys the random numbers (counter-based), so that equal requests draw equally wherever they run.
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            penalties: Penalties::default(),
            logit_bias: Vec::new(),
            seed: 0,
        }
    }
}

/// Penalties on tokens seen before.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Penalties {
    /// Divides positive and multiplies negative logits of tokens in prompt or answer (CTRL, arXiv 1909.05858); 1 is none.
    pub repetition: f32,
    /// Subtracted once per earlier occurrence in the answer; 0 is none.
    pub frequency: f32,
    /// Subtracted once if the token occurred in the answer; 0 is none.
    pub presence: f32,
}

impl Default for Penalties {
    fn default() -> Self {
        Self {
            repetition: 1.0,
            frequency: 0.0,
            presence: 0.0,
        }
    }
}

impl Penalties {
    /// Whether they change anything.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// The work itself, the same whoever does it and however often it is moved.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Generation {
    /// The prompt, followed by the tokens already sent to the client if the request was moved.
    pub tokens: Vec<u32>,
    /// How many of `tokens` are the client's prompt.
    pub prompt_len: u32,
    /// The media of the prompt, by position; they do not overlap.
    pub media: Vec<Medium>,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// The most tokens of answer, those already in `tokens` included.
    pub max_tokens: u32,
    /// Stop tokens are not chosen before this many tokens of answer.
    pub min_tokens: u32,
    /// Tokens that end the answer; the stop token itself is the last frame's token and is not text.
    pub stop_tokens: Vec<u32>,
    /// For each answered token: its log-probability and those of this many best alternatives.
    pub logprobs: Option<u8>,
    /// For each prompt token: the same (the first has none).
    pub prompt_logprobs: Option<u8>,
    /// Separates prefix caches of tenants; requests share blocks only under the same salt.
    pub cache_salt: String,
    /// Higher runs first.
    pub priority: i32,
}

/// Asks a decode instance for an answer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Generate {
    /// Request, deadline, trace.
    pub header: Header,
    /// What to do.
    pub generation: Generation,
    /// Who computes the prompt's pages; none: the instance itself.
    pub prefill: Option<InstanceRef>,
    /// How often the request was moved before this.
    pub attempt: u32,
    /// The run that this one goes on for; empty for the first.
    pub moved_from: TraceContext,
}

/// What a decode instance answers, in this order: `Started`, then `Prompt` if asked for, `Tokens` any number of times,
/// `Finished`. That the stream was accepted says that the request has its place.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum GenerateFrame {
    /// The prompt's pages are there or about to be computed.
    Started {
        /// Prompt tokens whose pages were found; the same number as in the final usage.
        cached_tokens: u32,
        /// The run in the trace, for the next one to name if the request moves.
        run: TraceContext,
    },
    /// Log-probabilities of the prompt's tokens, one entry each; `None` for the first.
    Prompt(Vec<Option<TokenLogprobs>>),
    /// The next tokens of the answer.
    Tokens(Vec<TokenOut>),
    /// The end.
    Finished {
        /// Why.
        reason: FinishReason,
        /// Totals.
        usage: Usage,
    },
}

/// One token of the answer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TokenOut {
    /// Its id.
    pub id: u32,
    /// Present when asked for.
    pub logprobs: Option<Box<TokenLogprobs>>,
}

/// Natural log-probabilities at one position, from the distribution before temperature and cuts.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TokenLogprobs {
    /// The token that stands there.
    pub chosen: f32,
    /// The best alternatives, falling; the chosen token is among them if it is that good.
    pub top: Vec<(u32, f32)>,
}

/// Why an answer ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum FinishReason {
    /// A stop token or stop string.
    Stop,
    /// The token limit or the context.
    Length,
    /// The model called tools.
    ToolCalls,
}

/// What a request cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt_tokens: u32,
    /// Tokens of the answer, the stop token included.
    pub completion_tokens: u32,
    /// Prompt tokens whose pages were found instead of computed; a multiple of the block size.
    pub cached_tokens: u32,
    /// Answer tokens that were reasoning.
    pub reasoning_tokens: u32,
}

/// Names one reservation of pages.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct TicketId(pub u128);

/// The right to write pages into a decode instance. The owner reserved them, and alone frees them: when they have all
/// arrived, or at the deadline, or when the request ends.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Ticket {
    /// Which reservation.
    pub id: TicketId,
    /// Who reserved; a write under another epoch is refused.
    pub owner: InstanceRef,
    /// The first page of the prompt that is wanted; those before it the owner already has.
    pub first_page: u32,
    /// One past the last page wanted.
    pub end_page: u32,
    /// Both sides must lay out pages alike.
    pub layout: Fingerprint,
    /// When the reservation ends, whatever has arrived.
    pub deadline: crate::Deadline,
}

/// Asks a prefill instance to compute a prompt's pages, push those of the ticket, and choose the first token.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Prefill {
    /// Request, deadline, trace.
    pub header: Header,
    /// What to do; the prefill instance stops after the first token.
    pub generation: Generation,
    /// Where the pages go.
    pub ticket: Ticket,
}

/// What a prefill instance answers.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum PrefillFrame {
    /// Log-probabilities of the prompt, when asked for.
    Prompt(Vec<Option<TokenLogprobs>>),
    /// All pages are pushed. The owner starts only when it holds `pages` pages whose digests combine to `digest`.
    Done {
        /// The first token of the answer.
        first: TokenOut,
        /// Prompt tokens found in the prefill instance's cache.
        cached_tokens: u32,
        /// How many pages were pushed.
        pages: u32,
        /// XOR of the 128-bit digests of (page number, page bytes).
        digest: u128,
    },
}
