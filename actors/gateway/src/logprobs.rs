//! Log-probabilities in the two shapes of the API.
//!
//! A token need not be whole characters. Chat says so with `bytes`; completions spell such a token `bytes:\xe2\x82`.

use std::fmt::Write as _;

use cluster_messages::TextLogprob;
use serde::{Serialize, Serializer};

use crate::routes::Api;

/// JSON has no infinity; the API writes impossible tokens like this.
const IMPOSSIBLE: f32 = -9999.0;

/// The `logprobs` of a choice or of one chunk of it.
#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum Logprobs {
    Chat(Chat),
    Completions(Completions),
}

#[derive(Serialize)]
pub(crate) struct Chat {
    content: Vec<Entry>,
    refusal: (),
}

#[derive(Serialize)]
struct Entry {
    #[serde(flatten)]
    token: Token,
    top_logprobs: Vec<Token>,
}

#[derive(Serialize)]
struct Token {
    token: String,
    logprob: f32,
    bytes: Vec<u8>,
}

#[derive(Serialize, Default)]
pub(crate) struct Completions {
    tokens: Vec<String>,
    token_logprobs: Vec<Option<f32>>,
    top_logprobs: Vec<Option<Alternatives>>,
    text_offset: Vec<usize>,
}

/// A map from token to log-probability that keeps its order.
struct Alternatives(Vec<(String, f32)>);

impl Serialize for Alternatives {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(token, logprob)| (token, logprob)))
    }
}

/// Shapes the tokens of one choice. `offset` counts the characters before them and is moved on.
pub(crate) fn shape(api: Api, tokens: &[TextLogprob], offset: &mut usize) -> Logprobs {
    match api {
        Api::Chat => Logprobs::Chat(Chat {
            content: tokens.iter().map(entry).collect(),
            refusal: (),
        }),
        Api::Completions => Logprobs::Completions(completions(tokens, offset)),
    }
}

fn entry(token: &TextLogprob) -> Entry {
    let shaped = |bytes: &[u8], logprob: f32| Token {
        token: String::from_utf8_lossy(bytes).into_owned(),
        logprob: finite(logprob),
        bytes: bytes.to_vec(),
    };
    Entry {
        token: shaped(&token.bytes, token.logprob.unwrap_or(0.0)),
        top_logprobs: token
            .top
            .iter()
            .map(|(_, bytes, logprob)| shaped(bytes, *logprob))
            .collect(),
    }
}

fn completions(tokens: &[TextLogprob], offset: &mut usize) -> Completions {
    let mut shaped = Completions::default();
    for token in tokens {
        shaped.tokens.push(spelled(&token.bytes));
        shaped.token_logprobs.push(token.logprob.map(finite));
        shaped
            .top_logprobs
            .push(token.logprob.map(|own| alternatives(token, own)));
        shaped.text_offset.push(*offset);
        // Characters are counted at their first byte, so a character cut over tokens counts once.
        *offset += token.bytes.iter().filter(|byte| **byte & 0xc0 != 0x80).count();
    }
    shaped
}

/// The best tokens and, as the API promises, the chosen one.
fn alternatives(token: &TextLogprob, own: f32) -> Alternatives {
    let top = token.top.iter().map(|(_, bytes, logprob)| (&bytes[..], *logprob));
    let mut entries: Vec<(String, f32)> = Vec::with_capacity(token.top.len() + 1);
    for (bytes, logprob) in top.chain([(&token.bytes[..], own)]) {
        let name = spelled(bytes);
        if entries.iter().all(|(known, _)| *known != name) {
            entries.push((name, finite(logprob)));
        }
    }
    Alternatives(entries)
}

fn spelled(bytes: &[u8]) -> String {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return text.to_owned();
    }
    let mut name = String::from("bytes:");
    for byte in bytes {
        let _ = write!(name, "\\x{byte:02x}");
    }
    name
}

fn finite(logprob: f32) -> f32 {
    if logprob.is_finite() { logprob } else { IMPOSSIBLE }
}

#[cfg(test)]
mod tests;
