//! One answer in the making: tokens in, text and calls out. Pure; survives the death of the instance that makes the tokens.
//!
//! ```text
//! tokens ─ AnswerReader ─▶ reasoning ──────────────────▶ frames
//!                      ├─▶ content ─ StopMatcher ──────▶ frames
//!                      └─▶ calls ──────────────────────▶ frames
//! ```
//! Stop strings are the client's, and so act on what it asked for: the content. Log-probabilities come for every token of the
//! answer but the one that ends it, in order, with the next frame of whatever kind.

use cluster_messages::{Channel, FinishReason, TextFrame, TextLogprob, TokenLogprobs, TokenOut, ToolHead};
use cluster_text::{AnswerEvent, AnswerReader, FunctionCall, StopMatcher, Tokenizer};

use super::prepare::Prepared;

/// What was said in one choice and what is needed to go on with it.
pub(crate) struct Choice<'a> {
    index: u32,
    tokenizer: &'a Tokenizer,
    prepared: &'a Prepared,
    reader: AnswerReader,
    stops: StopMatcher,
    tokens: Vec<u32>,
    logprobs: Vec<TextLogprob>,
    calls: u32,
}

/// What some tokens led to.
pub(crate) struct Progress {
    /// What became certain, for the client.
    pub(crate) frames: Vec<TextFrame>,
    /// A stop string was completed, or the only call that was wanted: the answer is over whatever the model still says.
    pub(crate) stopped: bool,
}

impl<'a> Choice<'a> {
    pub(crate) fn new(index: u32, tokenizer: &'a Tokenizer, prepared: &'a Prepared) -> Self {
        Self {
            index,
            tokenizer,
            prepared,
            reader: tokenizer.answer_reader(&prepared.format),
            stops: StopMatcher::new(&prepared.request.stop),
            tokens: Vec::new(),
            logprobs: Vec::new(),
            calls: 0,
        }
    }

    /// All tokens of the answer so far; a moved request goes on behind them.
    pub(crate) fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// How many of them are reasoning.
    pub(crate) fn reasoning_tokens(&self) -> u32 {
        self.reader.reasoning_tokens()
    }

    /// The next tokens of the answer. Tokens behind the end are not looked at.
    pub(crate) fn push(&mut self, tokens: Vec<TokenOut>) -> Progress {
        let (mut frames, mut events, mut stopped) = (Vec::new(), Vec::new(), false);
        for token in tokens {
            self.tokens.push(token.id);
            if self.prepared.stop_tokens.contains(&token.id) {
                break;
            }
            if let Some(logprobs) = token.logprobs {
                self.logprobs
                    .push(text_logprob(self.tokenizer, token.id, Some(&logprobs)));
            }
            self.reader.push(token.id, &mut events);
            stopped = self.tell(&mut events, &mut frames);
            if stopped {
                break;
            }
        }
        self.tell_logprobs(&mut frames);
        Progress { frames, stopped }
    }

    /// The answer is over for `reason`: what was held back, then the end.
    pub(crate) fn finish(&mut self, reason: FinishReason, stopped: bool) -> Vec<TextFrame> {
        let mut frames = Vec::new();
        if !stopped {
            let mut events = Vec::new();
            self.reader.finish(&mut events);
            if !self.tell(&mut events, &mut frames) {
                let rest = self.stops.finish();
                self.tell_text(Channel::Content, &rest, &mut frames);
            }
        }
        self.tell_logprobs(&mut frames);
        let reason = match reason {
            FinishReason::Stop if self.calls > 0 => FinishReason::ToolCalls,
            reason => reason,
        };
        frames.push(TextFrame::Finished {
            choice: self.index,
            reason,
        });
        frames
    }

    /// Turns events into frames. Whether the answer is over.
    fn tell(&mut self, events: &mut Vec<AnswerEvent>, frames: &mut Vec<TextFrame>) -> bool {
        for event in events.drain(..) {
            match event {
                AnswerEvent::Reasoning(text) => self.tell_text(Channel::Reasoning, &text, frames),
                AnswerEvent::Content(text) => {
                    let pushed = self.stops.push(&text);
                    self.tell_text(Channel::Content, &pushed.text, frames);
                    if pushed.stopped {
                        return true;
                    }
                }
                AnswerEvent::Call(call) => {
                    self.tell_call(call, frames);
                    if !self.prepared.request.parallel_tool_calls {
                        // A stop string can not come any more.
                        let rest = self.stops.finish();
                        self.tell_text(Channel::Content, &rest, frames);
                        return true;
                    }
                }
            }
        }
        false
    }

    fn tell_text(&mut self, channel: Channel, text: &str, frames: &mut Vec<TextFrame>) {
        if text.is_empty() {
            return;
        }
        let tokens = self.tokens.len() as u32;
        let logprobs = std::mem::take(&mut self.logprobs);
        if let Some(TextFrame::Delta {
            channel: last,
            text: before,
            logprobs: entries,
            tokens: counted,
            ..
        }) = frames.last_mut()
            && *last == channel
        {
            before.push_str(text);
            entries.extend(logprobs);
            *counted = tokens;
            return;
        }
        frames.push(TextFrame::Delta {
            choice: self.index,
            channel,
            text: text.to_owned(),
            logprobs,
            tokens,
        });
    }

    /// Calls come whole: a call that breaks off is none.
    fn tell_call(&mut self, call: FunctionCall, frames: &mut Vec<TextFrame>) {
        let index = self.calls;
        self.calls += 1;
        frames.push(TextFrame::ToolCall {
            choice: self.index,
            index,
            head: Some(ToolHead {
                id: self.call_id(index),
                name: call.name,
            }),
            arguments: call.arguments.0,
            logprobs: std::mem::take(&mut self.logprobs),
            tokens: self.tokens.len() as u32,
        });
    }

    /// Unique among all answers as the request's id is, and no longer than the 40 characters that some clients take.
    fn call_id(&self, index: u32) -> String {
        let request = self.prepared.request.header.request.0 as u64;
        format!("call_{request:016x}_{}_{index}", self.index)
    }

    /// What is left of log-probabilities has no text yet.
    fn tell_logprobs(&mut self, frames: &mut Vec<TextFrame>) {
        if self.logprobs.is_empty() {
            return;
        }
        let logprobs = std::mem::take(&mut self.logprobs);
        match frames.last_mut() {
            Some(
                TextFrame::Delta {
                    logprobs: entries,
                    tokens,
                    ..
                }
                | TextFrame::ToolCall {
                    logprobs: entries,
                    tokens,
                    ..
                },
            ) => {
                entries.extend(logprobs);
                *tokens = self.tokens.len() as u32;
            }
            _ => frames.push(TextFrame::Delta {
                choice: self.index,
                channel: Channel::Content,
                text: String::new(),
                logprobs,
                tokens: self.tokens.len() as u32,
            }),
        }
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

#[cfg(test)]
mod tests;
