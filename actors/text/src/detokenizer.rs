//! Token ids to text, as they come, in whole characters.
//!
//! The pieces joined are what decoding all tokens at once would give. Bytes that begin a character are held until it is complete;
//! bytes that can belong to none become U+FFFD, one for each broken sequence, as in `String::from_utf8_lossy`.

use std::sync::Arc;

use crate::vocabulary::Vocabulary;

/// The state of one answer. A clone goes on from the same place.
#[derive(Clone, Debug)]
pub struct Detokenizer {
    vocabulary: Arc<Vocabulary>,
    skips_special: bool,
    drops_blank: bool,
    /// The beginning of a character, at most three bytes between calls.
    pending: Vec<u8>,
}

impl Detokenizer {
    pub(crate) fn new(vocabulary: Arc<Vocabulary>, skips_special: bool, drops_blank: bool) -> Self {
        Self {
            vocabulary,
            skips_special,
            drops_blank,
            pending: Vec::new(),
        }
    }

    /// The text that `tokens` complete.
    pub fn push(&mut self, tokens: &[u32]) -> String {
        let mut text = String::new();
        for token in tokens {
            self.take(*token);
        }
        self.emit(&mut text);
        text
    }

    /// What is left when no more tokens come: nothing, or one U+FFFD for a character that was never completed.
    pub fn finish(&mut self) -> String {
        let rest = String::from_utf8_lossy(&self.pending).into_owned();
        self.pending.clear();
        rest
    }

    fn take(&mut self, token: u32) {
        if self.skips_special && self.vocabulary.is_special(token) {
            return;
        }
        let mut bytes = self.vocabulary.bytes(token);
        if self.drops_blank && !bytes.is_empty() {
            bytes = bytes.strip_prefix(b" ").unwrap_or(bytes);
            self.drops_blank = false;
        }
        self.pending.extend_from_slice(bytes);
    }

    /// Moves everything out of `pending` except for the beginning of a character.
    fn emit(&mut self, text: &mut String) {
        let mut done = 0;
        loop {
            match std::str::from_utf8(&self.pending[done..]) {
                Ok(rest) => {
                    text.push_str(rest);
                    self.pending.clear();
                    return;
                }
                Err(error) => {
                    let valid = done..done + error.valid_up_to();
                    text.push_str(&String::from_utf8_lossy(&self.pending[valid.clone()]));
                    done = valid.end;
                    let Some(broken) = error.error_len() else {
                        self.pending.drain(..done);
                        return;
                    };
                    text.push(char::REPLACEMENT_CHARACTER);
                    done += broken;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
