//! Keeps what users typed apart from what a template writes, while both go through the same template.
//!
//! ```text
//! user's string ─ Escapes::hide ─▶ template ─▶ rendered text ─ cut at control tokens ─ Escapes::restore ─▶ pieces
//! ```
//! Wherever a string from a user spells a control token, the spelling is replaced by one private character before rendering and
//! put back after the rendered text was cut at its control tokens. So only the template makes control tokens, and a prompt
//! without such spellings is rendered and encoded exactly as if this module did not exist.
//!
//! What a template does to single characters inside of a string (`replace`, slices) is not followed: a template that deletes
//! characters could in principle put a token together from pieces.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
};

use aho_corasick::{AhoCorasick, MatchKind};
use cluster_messages::RequestError;

use crate::TextError;

/// The stand-ins: plane 16 of Unicode, which is set aside for private use.
const FIRST: u32 = 0x10_0000;

/// The spellings of a model's control tokens.
#[derive(Debug)]
pub(crate) struct Controls {
    /// Upper and lower case alike, because templates change case.
    spellings: Option<AhoCorasick>,
    /// What a string may end with so that the next one could complete a control token.
    beginnings: HashSet<String>,
    beginning_len_max: usize,
}

impl Controls {
    pub(crate) fn new<'a>(tokens: impl IntoIterator<Item = &'a str>) -> Result<Self, TextError> {
        let tokens: Vec<&str> = tokens.into_iter().filter(|token| !token.is_empty()).collect();
        let mut builder = AhoCorasick::builder();
        builder
            .match_kind(MatchKind::LeftmostLongest)
            .ascii_case_insensitive(true);
        let spellings = builder
            .build(&tokens)
            .map_err(|error| TextError::Vocabulary(error.to_string()))?;
        let beginnings: HashSet<String> = tokens.iter().flat_map(|token| beginnings(token)).collect();
        Ok(Self {
            beginning_len_max: beginnings.iter().map(String::len).max().unwrap_or(0),
            spellings: (!tokens.is_empty()).then_some(spellings),
            beginnings,
        })
    }

    /// Where the longest beginning of a control token at the end of `text` starts.
    fn beginning_at_end(&self, text: &str) -> Option<usize> {
        let near = |start: &usize| text.len() - start <= self.beginning_len_max;
        let starts = text.char_indices().rev().map(|(start, _)| start).take_while(near);
        starts
            .filter(|start| self.beginnings.contains(&text[*start..].to_ascii_lowercase()))
            .last()
    }
}

fn beginnings(token: &str) -> impl Iterator<Item = String> {
    token
        .char_indices()
        .skip(1)
        .map(|(end, _)| token[..end].to_ascii_lowercase())
}

/// Whether `c` is one of the stand-ins, so that a text that has it must hide it too.
pub(crate) fn is_stand_in(c: char) -> bool {
    u32::from(c) >= FIRST
}

/// What the stand-ins of one prompt stand for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Escapes {
    originals: Vec<String>,
    known: HashMap<String, char>,
}

impl Escapes {
    /// `text` with every spelling of a control token hidden.
    pub(crate) fn hide(&mut self, controls: &Controls, text: &str) -> Result<String, RequestError> {
        let mut hidden = String::with_capacity(text.len());
        let mut done = 0;
        for found in controls
            .spellings
            .iter()
            .flat_map(|spellings| spellings.find_iter(text))
        {
            self.push_text(&text[done..found.start()], &mut hidden)?;
            hidden.push(self.stand_in(&text[found.range()])?);
            done = found.end();
        }
        let rest = &text[done..];
        let end = controls.beginning_at_end(rest).unwrap_or(rest.len());
        self.push_text(&rest[..end], &mut hidden)?;
        if end < rest.len() {
            hidden.push(self.stand_in(&rest[end..])?);
        }
        Ok(hidden)
    }

    /// A character that the template passes through and that no text has, to find a place again.
    pub(crate) fn mark(&mut self) -> Result<char, RequestError> {
        // No text hides the empty string, so this stand-in is the mark's alone.
        self.stand_in("")
    }

    fn push_text(&mut self, text: &str, hidden: &mut String) -> Result<(), RequestError> {
        for c in text.chars() {
            let c = if is_stand_in(c) {
                self.stand_in(c.encode_utf8(&mut [0; 4]))?
            } else {
                c
            };
            hidden.push(c);
        }
        Ok(())
    }

    fn stand_in(&mut self, original: &str) -> Result<char, RequestError> {
        if let Some(c) = self.known.get(original) {
            return Ok(*c);
        }
        let too_many = || RequestError::invalid("messages", "the messages have too many different private characters");
        let c = char::from_u32(FIRST + self.originals.len() as u32).ok_or_else(too_many)?;
        self.originals.push(original.to_owned());
        self.known.insert(original.to_owned(), c);
        Ok(c)
    }

    /// `text` with everything hidden put back.
    pub(crate) fn restore<'t>(&self, text: &'t str) -> Cow<'t, str> {
        if self.originals.is_empty() || !text.contains(is_stand_in) {
            return Cow::Borrowed(text);
        }
        let mut restored = String::with_capacity(text.len());
        for c in text.chars() {
            let index = u32::from(c).checked_sub(FIRST);
            match index.and_then(|index| self.originals.get(index as usize)) {
                Some(original) => restored.push_str(original),
                None => restored.push(c),
            }
        }
        Cow::Owned(restored)
    }
}

/// A rendered conversation that still knows which parts of it users typed.
#[derive(Clone, Debug)]
pub struct Prompt {
    pub(crate) rendered: String,
    pub(crate) escapes: Escapes,
}

impl Prompt {
    /// The prompt as text. To encode it use `Tokenizer::encode_prompt`: in this text, typed control tokens look like real ones.
    pub fn text(&self) -> Cow<'_, str> {
        self.escapes.restore(&self.rendered)
    }
}

#[cfg(test)]
mod tests;
