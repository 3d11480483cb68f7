//! From text to ids: added tokens are cut out, the rest is normalized, cut into words and merged.
//!
//! ```text
//! pieces ─ added tokens ─ normalizer ─ words ─ merges ─▶ ids
//! ```
//! The model of tokenizer.json and the general path are those of the `tokenizers` crate. Byte-level vocabularies, which is
//! most of them, take the `words` path to the same ids.

use std::borrow::Cow;

use tokenizers::{
    Model, ModelWrapper, NormalizedString, Normalizer, NormalizerWrapper, OffsetReferential, OffsetType,
    PreTokenizedString, PreTokenizer, PreTokenizerWrapper, Token,
};

use crate::{
    TextError,
    added::{Added, Finder, Stretch},
    words::Words,
};

/// A stretch of a prompt whose nature is settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece<'a> {
    /// Structure.
    Control(u32),
    /// Text, whatever it looks like.
    Text(Cow<'a, str>),
}

/// The rules of one model.
#[derive(Debug)]
pub(crate) struct Pipeline {
    model: ModelWrapper,
    normalizer: Option<NormalizerWrapper>,
    pre_tokenizer: Option<PreTokenizerWrapper>,
    /// The fast path, where the rules allow it.
    words: Option<Words>,
    controls: Finder,
    control_ids: Vec<u32>,
    added: Finder,
    added_normalized: Finder,
}

impl Pipeline {
    pub(crate) fn new(
        model: ModelWrapper,
        normalizer: Option<NormalizerWrapper>,
        pre_tokenizer: Option<PreTokenizerWrapper>,
        added: Vec<Added>,
    ) -> Result<Self, TextError> {
        let words = words_of(normalizer.as_ref(), pre_tokenizer.as_ref());
        let (controls, added): (Vec<_>, Vec<_>) = added.into_iter().partition(|token| token.control);
        let (added_normalized, added) = added.into_iter().partition(|token| token.normalized);
        let mut control_ids: Vec<u32> = controls.iter().map(|token| token.id).collect();
        control_ids.sort_unstable();
        let finder =
            |tokens| Finder::new(tokens).map_err(|error| TextError::Vocabulary(format!("added tokens: {error}")));
        Ok(Self {
            model,
            normalizer,
            pre_tokenizer,
            words,
            controls: finder(controls)?,
            control_ids,
            added: finder(added)?,
            added_normalized: finder(added_normalized)?,
        })
    }

    /// Cuts `text` at the control tokens in it.
    pub(crate) fn at_controls<'t>(&self, text: &'t str) -> Vec<(&'t str, Option<u32>)> {
        let stretches = self.controls.cut(text).into_iter();
        stretches.map(|stretch| (&text[stretch.range], stretch.token)).collect()
    }

    /// The ids of a prompt. Text gives no control id.
    pub(crate) fn encode(&self, pieces: &[Piece<'_>]) -> Vec<u32> {
        let mut ids = Vec::new();
        let mut is_first = true;
        for piece in pieces {
            match piece {
                Piece::Control(id) => ids.push(*id),
                Piece::Text(text) => self.encode_text(text, is_first, &mut ids),
            }
            is_first = false;
        }
        ids
    }

    fn encode_text(&self, text: &str, is_first: bool, ids: &mut Vec<u32>) {
        let Some(words) = self.words.as_ref().filter(|_| self.added_normalized.is_empty()) else {
            return self.encode_generally(text, is_first, ids);
        };
        for stretch in self.added.cut(text) {
            match stretch.token {
                Some(id) => ids.push(id),
                None => self.encode_words(words, &text[stretch.range], ids),
            }
        }
    }

    fn encode_words(&self, words: &Words, text: &str, ids: &mut Vec<u32>) {
        let text = self.normalize(text);
        let mut letters = String::new();
        words.each(&text, |word| {
            words.spell(word, &mut letters);
            // Merging fails only for an unknown token that is not in the vocabulary, and every byte has a letter.
            let tokens = self.model.tokenize(&letters).unwrap_or_default();
            self.push(&tokens, ids);
        });
    }

    /// For the `words` path, whose only normalizer is the canonical composition of Unicode; it leaves ASCII as it is.
    fn normalize<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let Some(normalizer) = self.normalizer.as_ref().filter(|_| !text.is_ascii()) else {
            return Cow::Borrowed(text);
        };
        let mut normalized = NormalizedString::from(text);
        match normalizer.normalize(&mut normalized) {
            Ok(()) => Cow::Owned(normalized.get().to_owned()),
            Err(_) => Cow::Borrowed(text),
        }
    }

    /// The rules of the model as they stand. A text that the model fails on is tried in halves, down to the characters that have
    /// no token and are left out: every text has ids.
    fn encode_generally(&self, text: &str, is_first: bool, ids: &mut Vec<u32>) {
        if text.is_empty() {
            return;
        }
        match self.tokenize_generally(text, is_first) {
            Ok(found) => ids.extend(found),
            Err(_) => {
                let (middle, _) = text.char_indices().nth(text.chars().count() / 2).unwrap_or_default();
                if middle > 0 {
                    self.encode_generally(&text[..middle], is_first, ids);
                    self.encode_generally(&text[middle..], false, ids);
                }
            }
        }
    }

    fn tokenize_generally(&self, text: &str, is_first: bool) -> tokenizers::Result<Vec<u32>> {
        let mut text = if is_first {
            PreTokenizedString::from(text)
        } else {
            behind_something(text)?
        };
        text.split(|_, text| Ok(attach(&self.added, text)))?;
        text.split(|_, mut text| {
            if let Some(normalizer) = &self.normalizer {
                normalizer.normalize(&mut text)?;
            }
            Ok(attach(&self.added_normalized, text))
        })?;
        if let Some(pre_tokenizer) = &self.pre_tokenizer {
            pre_tokenizer.pre_tokenize(&mut text)?;
        }
        text.tokenize(|word| self.model.tokenize(word.get()))?;
        let mut ids = Vec::new();
        for (_, _, tokens) in text.get_splits(OffsetReferential::Normalized, OffsetType::None) {
            self.push(tokens.as_deref().unwrap_or_default(), &mut ids);
        }
        Ok(ids)
    }

    /// Appends the ids of `tokens`. Merges of some vocabularies can build a control token out of typed characters; such a token
    /// is spelled out instead.
    fn push(&self, tokens: &[Token], ids: &mut Vec<u32>) {
        for token in tokens {
            if self.is_control(token.id) {
                self.spell_out(&token.value, ids);
            } else {
                ids.push(token.id);
            }
        }
    }

    fn spell_out(&self, token: &str, ids: &mut Vec<u32>) {
        for c in token.chars() {
            let letter = self
                .model
                .token_to_id(c.encode_utf8(&mut [0; 4]))
                .filter(|id| !self.is_control(*id));
            match letter {
                Some(id) => ids.push(id),
                None => ids.extend(self.byte_tokens(c)),
            }
        }
    }

    fn byte_tokens(&self, c: char) -> impl Iterator<Item = u32> {
        let mut buffer = [0; 4];
        let bytes = c.encode_utf8(&mut buffer).as_bytes().to_vec();
        bytes
            .into_iter()
            .filter_map(|byte| self.model.token_to_id(&format!("<0x{byte:02X}>")))
    }

    fn is_control(&self, id: u32) -> bool {
        self.control_ids.binary_search(&id).is_ok()
    }
}

fn words_of(normalizer: Option<&NormalizerWrapper>, pre_tokenizer: Option<&PreTokenizerWrapper>) -> Option<Words> {
    if !matches!(normalizer, None | Some(NormalizerWrapper::NFC(_))) {
        return None;
    }
    let rules = serde_json::to_value(pre_tokenizer?).ok()?;
    Words::from_json(&rules)
}

/// `text` as a part of a longer one. Some models begin a text, and only a text, with a blank; they look at the place where a
/// part begins.
fn behind_something(text: &str) -> tokenizers::Result<PreTokenizedString> {
    let mut longer = PreTokenizedString::from(format!(".{text}"));
    longer.split(|_, whole| {
        let part = |range| whole.slice(tokenizers::tokenizer::normalizer::Range::Normalized(range));
        let before = part(0..1).map(|dot| (dot, Some(Vec::new())));
        let text = part(1..whole.len()).map(|text| (text, None));
        Ok(before.into_iter().chain(text).collect::<Vec<_>>())
    })?;
    Ok(longer)
}

fn attach(finder: &Finder, text: NormalizedString) -> Vec<(NormalizedString, Option<Vec<Token>>)> {
    if finder.is_empty() {
        return vec![(text, None)];
    }
    let slice = |stretch: Stretch| {
        let slice = text.slice(tokenizers::tokenizer::normalizer::Range::Normalized(stretch.range))?;
        let token = stretch
            .token
            .map(|id| vec![Token::new(id, slice.get().to_owned(), (0, slice.len()))]);
        Some((slice, token))
    };
    finder.cut(text.get()).into_iter().filter_map(slice).collect()
}

#[cfg(test)]
mod tests;
