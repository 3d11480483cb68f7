//! The answers of the Muse family: messages to recipients.
//!
//! ```text
//!  to=self<|message|>thinking<|eom|><|start|>assistant to=user<|message|>answer<|eot|>
//! └────── header ────┘└─ body ─┘     └─────────── header ──────────────┘└ body ┘
//! ```
//! | recipient | its bodies |
//! |---|---|
//! | `self`, or none | reasoning |
//! | `user`, `commentary` | content |
//! | `developer`, and messages that are not the assistant's | dropped |
//! | anything else | calls, in blocks; without functions to call: content |
//!
//! A body ends at a mark, or where the next header begins even if no mark was written before it. So the end of the text so
//! far is held back while it may still be ` to=NAME`. Text before the first header is content; blanks there, and text between
//! a message's end and the next header, are nothing. A header that never ends is nothing either.

mod block;
mod marks;

use std::sync::Arc;

use self::block::Blocks;
pub(super) use self::marks::{BODY, Found, MARKS, Mark, SPELLINGS, WrittenMarks};
use super::{AnswerEvent, functions::Functions, push_text};

/// Longer texts behind `to=` are no recipients.
const NAME_CHARS_MAX: usize = 256;
/// Longer texts behind `<|start|>` are no headers.
const HEADER_BYTES_MAX: usize = 1024;
const TO: &str = "to=";

/// The tokens that a stretch of text came from, counted from 1: all behind `before`, up to `last`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Span {
    pub(super) before: u32,
    pub(super) last: u32,
}

/// Who reads a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Recipient {
    Thought,
    Client,
    Nobody,
    Function,
}

/// Where the parser is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// Before the first header.
    Unframed,
    /// Behind `<|start|>`.
    Header,
    Body(Recipient),
    /// Behind the end of a message.
    Between,
}

/// The state of one answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Parser {
    functions: Arc<Functions>,
    place: Place,
    /// The end of the text so far that may be the beginning of `to=NAME`.
    held: Vec<(char, Span)>,
    header: String,
    /// Blanks before the first text.
    blanks: Option<String>,
    blocks: Blocks,
    reasoning_tokens: u32,
    /// The last token that was counted.
    counted: u32,
}

impl Parser {
    /// A parser for an answer that begins in the body of a message to `start`, or with nothing said yet.
    pub(super) fn new(functions: Arc<Functions>, start: Option<Recipient>) -> Self {
        Self {
            functions,
            place: start.map_or(Place::Unframed, Place::Body),
            held: Vec::new(),
            header: String::new(),
            blanks: Some(String::new()),
            blocks: Blocks::default(),
            reasoning_tokens: 0,
            counted: 0,
        }
    }

    /// Tokens of reasoning so far, without headers and marks.
    pub(super) fn reasoning_tokens(&self) -> u32 {
        self.reasoning_tokens
    }

    /// Takes text without marks.
    pub(super) fn text(&mut self, text: &str, span: Span, events: &mut Vec<AnswerEvent>) {
        if self.place == Place::Header {
            return self.header_text(text);
        }
        let mut free = String::new();
        for c in text.chars() {
            self.hold(c, span, &mut free);
        }
        self.say(&free, events);
    }

    pub(super) fn mark(&mut self, mark: Mark, events: &mut Vec<AnswerEvent>) {
        match mark {
            Mark::Message => {
                let recipient = self.recipient(events);
                self.open(Place::Body(recipient));
            }
            Mark::Start => {
                self.release(events);
                self.open(Place::Header);
            }
            Mark::EndOfMessage | Mark::EndOfTurn => {
                self.release(events);
                if self.place != Place::Unframed {
                    self.open(Place::Between);
                }
            }
        }
    }

    /// No more comes but `rest`, which may be the beginning of a mark.
    pub(super) fn finish(&mut self, rest: &str, span: Span, events: &mut Vec<AnswerEvent>) {
        let is_silent = self.place == Place::Unframed && self.blanks.is_some();
        if is_silent && !self.held.is_empty() {
            // The answer was cut in its first header.
            self.held.clear();
            return;
        }
        self.text(rest, span, events);
        self.release(events);
        if let (Place::Unframed, Some(blanks)) = (self.place, self.blanks.take()) {
            push_text(events, false, &blanks);
        }
    }

    fn open(&mut self, place: Place) {
        self.place = place;
        self.header.clear();
        self.blocks = Blocks::default();
    }

    fn header_text(&mut self, text: &str) {
        self.header.push_str(text);
        if self.header.len() > HEADER_BYTES_MAX {
            self.open(Place::Between);
        }
    }

    /// Adds `c` to what is held, and moves what can not become `to=NAME` to `free`.
    fn hold(&mut self, c: char, span: Span, free: &mut String) {
        while !self.held.is_empty() && !self.goes_on_with(c) {
            let kept = (1..self.held.len()).find(|start| may_become_to(&self.held[*start..]));
            let end = kept.unwrap_or(self.held.len());
            for (c, span) in self.held.drain(..end).collect::<Vec<_>>() {
                self.count(span);
                free.push(c);
            }
        }
        if !self.held.is_empty() || TO.starts_with(c) {
            self.held.push((c, span));
        } else {
            self.count(span);
            free.push(c);
        }
    }

    fn goes_on_with(&self, c: char) -> bool {
        match TO.chars().nth(self.held.len()) {
            Some(expected) => c == expected,
            None => is_of_name(c) && self.held.len() < NAME_CHARS_MAX,
        }
    }

    /// What is held is text.
    fn release(&mut self, events: &mut Vec<AnswerEvent>) {
        let mut free = String::new();
        for (c, span) in std::mem::take(&mut self.held) {
            self.count(span);
            free.push(c);
        }
        self.say(&free, events);
    }

    /// Who the message is for whose header has just ended.
    fn recipient(&mut self, events: &mut Vec<AnswerEvent>) -> Recipient {
        if self.place == Place::Header {
            let Some(header) = self.header.strip_prefix("assistant") else {
                return if self.header.trim().is_empty() {
                    Recipient::Thought
                } else {
                    Recipient::Nobody
                };
            };
            return match header.trim() {
                "" => Recipient::Thought,
                header => header
                    .strip_prefix(TO)
                    .map_or(Recipient::Nobody, |name| self.recipient_named(name)),
            };
        }
        let held: String = self.held.iter().map(|(c, _)| c).collect();
        match held.strip_prefix(TO) {
            Some(name) if !name.is_empty() => {
                self.held.clear();
                self.recipient_named(name)
            }
            _ => {
                self.release(events);
                Recipient::Thought
            }
        }
    }

    fn recipient_named(&self, name: &str) -> Recipient {
        recipient_named(name, !self.functions.names().is_empty())
    }

    fn say(&mut self, text: &str, events: &mut Vec<AnswerEvent>) {
        match self.place {
            Place::Unframed => self.say_unframed(text, events),
            Place::Body(Recipient::Thought) => push_text(events, true, text),
            Place::Body(Recipient::Client) => push_text(events, false, text),
            Place::Body(Recipient::Function) => {
                let functions = &self.functions;
                self.blocks.push(text, |name, values| {
                    events.push(AnswerEvent::Call(functions.call(name, values)));
                });
            }
            Place::Header | Place::Body(Recipient::Nobody) | Place::Between => {}
        }
    }

    fn say_unframed(&mut self, text: &str, events: &mut Vec<AnswerEvent>) {
        match &mut self.blanks {
            Some(blanks) if text.trim().is_empty() => blanks.push_str(text),
            blanks => {
                let blanks = blanks.take().unwrap_or_default();
                push_text(events, false, &blanks);
                push_text(events, false, text);
            }
        }
    }

    /// Counts the tokens of a character of reasoning, each once.
    fn count(&mut self, span: Span) {
        if self.place == Place::Body(Recipient::Thought) && span.last > self.counted {
            self.reasoning_tokens += span.last - span.before.max(self.counted);
            self.counted = span.last;
        }
    }
}

/// Who is called `name`. Without functions to call, what would be a call is said to the client.
pub(super) fn recipient_named(name: &str, has_functions: bool) -> Recipient {
    match name {
        "self" => Recipient::Thought,
        "user" | "commentary" => Recipient::Client,
        "developer" => Recipient::Nobody,
        _ if has_functions => Recipient::Function,
        _ => Recipient::Client,
    }
}

/// Names that no function can have, because they are recipients of another kind.
pub(super) const RESERVED_NAMES: [&str; 4] = ["self", "user", "commentary", "developer"];

fn may_become_to(held: &[(char, Span)]) -> bool {
    let known = TO.chars().zip(held);
    known.into_iter().all(|(expected, (c, _))| *c == expected)
}

fn is_of_name(c: char) -> bool {
    !c.is_whitespace() && !matches!(c, '<' | '>' | '=' | '"')
}

#[cfg(test)]
mod tests;
