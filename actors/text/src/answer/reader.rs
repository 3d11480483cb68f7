//! Tokens in, events out.

use crate::{Detokenizer, Tokenizer};

use super::{
    AnswerEvent, AnswerFormat, Family,
    muse::{self, Found, Mark, Span, WrittenMarks},
    push_text,
};

/// The state of one answer. A clone goes on from the same place.
#[derive(Clone, Debug)]
pub struct AnswerReader {
    detokenizer: Detokenizer,
    muse: Option<Box<Muse>>,
}

/// Marks that are tokens of the vocabulary are found by their ids, so that a mark that was typed letter by letter stays text;
/// the others are looked for in the text.
#[derive(Clone, Debug)]
struct Muse {
    parser: muse::Parser,
    written: WrittenMarks,
    marks: Vec<(u32, Mark)>,
    /// Tokens so far, and how many of them the text so far came from.
    tokens: u32,
    told: u32,
}

impl AnswerReader {
    pub(crate) fn new(tokenizer: &Tokenizer, format: &AnswerFormat) -> Self {
        let muse = format.way.as_ref().map(|way| {
            let Family::Muse = way.family;
            let marks = muse::MARKS.into_iter().zip(muse::SPELLINGS);
            Box::new(Muse {
                parser: muse::Parser::new(way.functions.clone(), way.start),
                written: WrittenMarks::new(|spelling| tokenizer.special_id(spelling).is_some()),
                marks: marks
                    .filter_map(|(mark, spelling)| Some((tokenizer.special_id(spelling)?, mark)))
                    .collect(),
                tokens: 0,
                told: 0,
            })
        });
        Self {
            detokenizer: tokenizer.detokenizer(true),
            muse,
        }
    }

    /// Takes the next token. What became certain is appended to `events`.
    pub fn push(&mut self, token: u32, events: &mut Vec<AnswerEvent>) {
        let Some(muse) = &mut self.muse else {
            return push_text(events, false, &self.detokenizer.push(&[token]));
        };
        muse.tokens += 1;
        match muse.marks.iter().find(|(id, _)| *id == token) {
            Some((_, mark)) => {
                let mark = *mark;
                muse.text(&self.detokenizer.finish(), 1, events);
                muse.mark(mark, events);
            }
            None => muse.text(&self.detokenizer.push(&[token]), 0, events),
        }
    }

    /// No more tokens come.
    pub fn finish(&mut self, events: &mut Vec<AnswerEvent>) {
        let rest = self.detokenizer.finish();
        match &mut self.muse {
            None => push_text(events, false, &rest),
            Some(muse) => {
                muse.text(&rest, 0, events);
                muse.finish(events);
            }
        }
    }

    /// Tokens of reasoning so far, without headers and marks.
    pub fn reasoning_tokens(&self) -> u32 {
        self.muse.as_ref().map_or(0, |muse| muse.parser.reasoning_tokens())
    }
}

impl Muse {
    /// Takes text that all tokens since the last text have made, but for the last `except`.
    fn text(&mut self, text: &str, except: u32, events: &mut Vec<AnswerEvent>) {
        if text.is_empty() {
            return;
        }
        let last = self.tokens - except;
        let mut before = self.told;
        let parser = &mut self.parser;
        self.written.push(text, |found| match found {
            Found::Text(text) => parser.text(text, Span { before, last }, events),
            Found::Mark(mark) => {
                parser.mark(mark, events);
                // What comes behind a written mark comes from the token that ended it.
                before = last.saturating_sub(1);
            }
        });
        self.told = if self.written.is_holding() { before } else { last };
    }

    /// A token that is a mark. What was held because it might become one is text.
    fn mark(&mut self, mark: Mark, events: &mut Vec<AnswerEvent>) {
        self.parser.text(&self.written.finish(), self.untold(), events);
        self.parser.mark(mark, events);
        self.told = self.tokens;
    }

    fn finish(&mut self, events: &mut Vec<AnswerEvent>) {
        self.parser.finish(&self.written.finish(), self.untold(), events);
    }

    /// The tokens that no text has been told of.
    fn untold(&self) -> Span {
        Span {
            before: self.told,
            last: self.tokens,
        }
    }
}
