//! Tokens that are found in text before it is cut into words: control tokens such as `<|im_end|>`, and words that the model's
//! makers added.

use std::ops::Range;

use aho_corasick::{AhoCorasick, MatchKind};

/// One added token. The flags mean what they mean in tokenizer.json.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Added {
    pub(crate) id: u32,
    pub(crate) content: String,
    /// Structure of a prompt, never text.
    pub(crate) control: bool,
    /// Looked for after the text was normalized.
    pub(crate) normalized: bool,
    /// Swallows white space before it.
    pub(crate) lstrip: bool,
    /// Swallows white space behind it.
    pub(crate) rstrip: bool,
    /// Not found inside of a word.
    pub(crate) single_word: bool,
}

impl Added {
    /// A token without any flag.
    pub(crate) fn plain(id: u32, content: &str, control: bool) -> Self {
        Self {
            id,
            content: content.to_owned(),
            control,
            normalized: false,
            lstrip: false,
            rstrip: false,
            single_word: false,
        }
    }
}

/// Finds the added tokens of one kind: the longest at the leftmost place first, as the reference implementation does.
#[derive(Debug)]
pub(crate) struct Finder {
    tokens: Vec<Added>,
    automaton: Option<AhoCorasick>,
}

/// A stretch of text: an added token, or what is left between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stretch {
    pub(crate) range: Range<usize>,
    pub(crate) token: Option<u32>,
}

impl Finder {
    /// Fails only if the tokens are too many or too long to be indexed.
    pub(crate) fn new(tokens: Vec<Added>) -> Result<Self, aho_corasick::BuildError> {
        let tokens: Vec<Added> = tokens.into_iter().filter(|token| !token.content.is_empty()).collect();
        let automaton = if tokens.is_empty() {
            None
        } else {
            let contents = tokens.iter().map(|token| &token.content);
            Some(
                AhoCorasick::builder()
                    .match_kind(MatchKind::LeftmostLongest)
                    .build(contents)?,
            )
        };
        Ok(Self { tokens, automaton })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Cuts `text` into stretches that cover it.
    pub(crate) fn cut(&self, text: &str) -> Vec<Stretch> {
        let mut stretches = Vec::new();
        let mut done = 0;
        for found in self.automaton.iter().flat_map(|automaton| automaton.find_iter(text)) {
            let token = &self.tokens[found.pattern().as_usize()];
            // An earlier token may have swallowed the blanks that this one consists of.
            let swallowed = found.end() <= done;
            if swallowed || (token.single_word && !stands_alone(text, found.range())) {
                continue;
            }
            let range = with_blanks(text, found.range(), token, done);
            push_text(&mut stretches, done..range.start);
            done = range.end;
            stretches.push(Stretch {
                range,
                token: Some(token.id),
            });
        }
        push_text(&mut stretches, done..text.len());
        stretches
    }
}

fn push_text(stretches: &mut Vec<Stretch>, range: Range<usize>) {
    if !range.is_empty() {
        stretches.push(Stretch { range, token: None });
    }
}

fn with_blanks(text: &str, found: Range<usize>, token: &Added, done: usize) -> Range<usize> {
    let start = if token.lstrip {
        text[..found.start].trim_end().len().max(done)
    } else {
        found.start.max(done)
    };
    let end = if token.rstrip {
        text.len() - text[found.end..].trim_start().len()
    } else {
        found.end
    };
    start..end
}

fn stands_alone(text: &str, found: Range<usize>) -> bool {
    let in_word = |c: char| c.is_alphanumeric() || c == '_';
    !text[..found.start].ends_with(in_word) && !text[found.end..].starts_with(in_word)
}

#[cfg(test)]
mod tests;
