//! The usual way to cut text into words before byte pairs are merged, in time linear in the text.
//!
//! Byte-level tokenizers describe words with a regular expression that ends in `\s+(?!\S)|\s+`: white space, but its last
//! blank belongs to the word behind it. The look-ahead forces a backtracking engine, which is slow and gives up on long runs
//! of blanks. Here the look-ahead is left out of the expression and done by hand afterwards, with the same result.

use std::ops::Range;

use regex::Regex;
use serde_json::Value;

use crate::byte_level;

/// The end of an expression that this module understands.
const BLANKS: &str = r"|\s+(?!\S)|\s+";

/// The words of GPT-2, which many later vocabularies took over.
pub(crate) const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

/// Cuts text into words and spells them in the byte-level alphabet.
#[derive(Debug)]
pub(crate) struct Words {
    expression: Regex,
    /// Lines end in words of their own, so that the last blank of a line end is never given back.
    keeps_line_ends: bool,
    /// Digits are cut off one by one first.
    single_digits: bool,
    alphabet: [char; 256],
}

impl Words {
    /// Understands the pre-tokenizer of a tokenizer.json, or answers none if it is of another kind.
    pub(crate) fn from_json(pre_tokenizer: &Value) -> Option<Self> {
        let rules = match pre_tokenizer["type"].as_str()? {
            "Sequence" => pre_tokenizer["pretokenizers"].as_array()?.iter().collect(),
            _ => vec![pre_tokenizer],
        };
        let (bytes, rules) = rules.split_last()?;
        let plain_bytes = bytes["type"] == "ByteLevel" && bytes["add_prefix_space"] == false;
        let own_words = bytes["use_regex"].as_bool().unwrap_or(true);
        match (plain_bytes, own_words, rules) {
            (true, true, []) => Self::new(GPT2, false),
            (true, true, [digits]) if digits["type"] == "Digits" && digits["individual_digits"] == true => {
                Self::new(GPT2, true)
            }
            (true, false, [split]) => Self::new(isolating_expression(split)?, false),
            _ => None,
        }
    }

    fn new(expression: &str, single_digits: bool) -> Option<Self> {
        let words = expression.strip_suffix(BLANKS)?;
        // Anything else that looks around does not parse here.
        let linear = Regex::new(&format!(r"{words}|\s+")).ok()?;
        Some(Self {
            expression: linear,
            keeps_line_ends: words.contains(r"\s*[\r\n]"),
            single_digits,
            alphabet: byte_level::alphabet(),
        })
    }

    /// Calls `word` with every word of `text`, in order.
    pub(crate) fn each<'t>(&self, text: &'t str, mut word: impl FnMut(&'t str)) {
        if !self.single_digits {
            return self.each_between_digits(text, &mut word);
        }
        let mut done = 0;
        for (at, digit) in text.match_indices(char::is_numeric) {
            self.each_between_digits(&text[done..at], &mut word);
            word(digit);
            done = at + digit.len();
        }
        self.each_between_digits(&text[done..], &mut word);
    }

    /// Writes `word` in the byte-level alphabet.
    pub(crate) fn spell(&self, word: &str, letters: &mut String) {
        letters.clear();
        letters.extend(word.bytes().map(|byte| self.alphabet[usize::from(byte)]));
    }

    fn each_between_digits<'t>(&self, text: &'t str, word: &mut impl FnMut(&'t str)) {
        let mut done = 0;
        while let Some(found) = self.expression.find_at(text, done) {
            let range = self.give_back_blank(text, found.range());
            if done < range.start {
                word(&text[done..range.start]);
            }
            word(&text[range.clone()]);
            done = range.end;
        }
        if done < text.len() {
            word(&text[done..]);
        }
    }

    /// `\s+(?!\S)` by hand: a run of blanks before a word leaves its last blank to that word.
    fn give_back_blank(&self, text: &str, found: Range<usize>) -> Range<usize> {
        let run = &text[found.clone()];
        let last = run.chars().next_back().unwrap_or_default();
        let is_run = last.is_whitespace() && run.chars().all(char::is_whitespace);
        let ends_line = self.keeps_line_ends && matches!(last, '\r' | '\n');
        if !is_run || ends_line || found.end == text.len() || run.len() == last.len_utf8() {
            return found;
        }
        found.start..found.end - last.len_utf8()
    }
}

fn isolating_expression(split: &Value) -> Option<&str> {
    let isolates = split["type"] == "Split" && split["behavior"] == "Isolated" && split["invert"] == false;
    isolates.then(|| split["pattern"]["Regex"].as_str()).flatten()
}

#[cfg(test)]
mod tests;
