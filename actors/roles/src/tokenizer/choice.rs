//! One answer in the making: tokens in, text out. Pure; survives the death of the instance that makes the tokens.

use cluster_messages::{Channel, FinishReason, TextFrame, TextLogprob, TokenLogprobs, TokenOut};
use cluster_text::{Detokenizer, StopMatcher, Tokenizer};

/// The text of one choice and what is needed to go on with it.
pub(crate) struct Choice<'a> {
    index: u32,
    tokenizer: &'a Tokenizer,
    detokenizer: Detokenizer,
    stops: StopMatcher,
    stop_tokens: &'a [u32],
    tokens: Vec<u32>,
    logprobs: Vec<TextLogprob>,
}

/// What some tokens led to.
pub(crate) struct Progress {
    /// Text for the client, if any became certain.
    pub(crate) delta: Option<TextFrame>,
    /// A stop string was completed: the answer is over whatever the model still says.
    pub(crate) stopped: bool,
}

impl<'a> Choice<'a> {
    pub(crate) fn new(index: u32, tokenizer: &'a Tokenizer, stops: &[String], stop_tokens: &'a [u32]) -> Self {
        Self {
            index,
            tokenizer,
            detokenizer: tokenizer.detokenizer(true),
            stops: StopMatcher::new(stops),
            stop_tokens,
            tokens: Vec::new(),
            logprobs: Vec::new(),
        }
    }

    /// All tokens of the answer so far; a moved request goes on behind them.
    pub(crate) fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// The next tokens of the answer. Tokens behind a completed stop string are not looked at.
    pub(crate) fn push(&mut self, tokens: Vec<TokenOut>) -> Progress {
        let mut text = String::new();
        let mut stopped = false;
        for token in tokens {
            self.tokens.push(token.id);
            if self.stop_tokens.contains(&token.id) {
                break;
            }
            if let Some(logprobs) = token.logprobs {
                self.logprobs
                    .push(text_logprob(self.tokenizer, token.id, Some(&logprobs)));
            }
            let pushed = self.stops.push(&self.detokenizer.push(&[token.id]));
            text.push_str(&pushed.text);
            if pushed.stopped {
                stopped = true;
                break;
            }
        }
        Progress {
            delta: self.delta(text),
            stopped,
        }
    }

    /// The answer is over for `reason`: what was held back, then the end.
    pub(crate) fn finish(&mut self, reason: FinishReason, stopped: bool) -> [Option<TextFrame>; 2] {
        let mut text = String::new();
        if !stopped {
            let pushed = self.stops.push(&self.detokenizer.finish());
            text.push_str(&pushed.text);
            if !pushed.stopped {
                text.push_str(&self.stops.finish());
            }
        }
        let rest = self.delta(text);
        [
            rest,
            Some(TextFrame::Finished {
                choice: self.index,
                reason,
            }),
        ]
    }

    fn delta(&mut self, text: String) -> Option<TextFrame> {
        if text.is_empty() && self.logprobs.is_empty() {
            return None;
        }
        let logprobs = std::mem::take(&mut self.logprobs);
        Some(TextFrame::Delta {
            channel: Channel::Content,
            choice: self.index,
            text,
            logprobs,
            tokens: self.tokens.len() as u32,
        })
    }
}

/// A token with its bytes and those of its alternatives.
pub(crate) fn text_logprob(tokenizer: &Tokenizer, id: u32, logprobs: Option<&TokenLogprobs>) -> TextLogprob {
    let bytes = |id| tokenizer.token_bytes(id).to_vec();
    let top = logprobs.map_or(&[][..], |found| &found.top);
    TextLogprob {
        id,
        bytes: bytes(id),
        logprob: logprobs.map(|found| found.chosen),
        top: top
            .iter()
            .map(|(other, logprob)| (*other, bytes(*other), *logprob))
            .collect(),
    }
}
