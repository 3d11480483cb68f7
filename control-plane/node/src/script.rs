//! Script files: what the scripted model answers, in the words of a test.
//!
//! ```yaml
//! scripts:
//!   - emit: [{ text: "The quick brown fox" }]   # pieces: { text: … } or { special: … }
//!     then: eos                       # eos | limit | error
//!     tokens_per_step: 1
//! ```

use cluster_engine::{Script, ScriptedConfig, Stall, Then};
use cluster_text::{Specials, Tokenizer};
use serde::Deserialize;

/// A script file.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScriptFile {
    /// Answers, in the order of the requests; after the last one the first comes again.
    pub(crate) scripts: Vec<ScriptText>,
    /// Microseconds that a step takes.
    #[serde(default)]
    pub(crate) step_us: u64,
}

/// One answer.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScriptText {
    emit: Vec<Piece>,
    #[serde(default)]
    then: Then,
    #[serde(default = "one")]
    tokens_per_step: u32,
    #[serde(default)]
    stalls: Vec<Stall>,
}

fn one() -> u32 {
    1
}

/// A piece of an answer.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Piece {
    /// Ordinary tokens.
    Text(String),
    /// The control token of that name.
    Special(String),
}

impl ScriptFile {
    /// Reads a script file; the error says where it is wrong.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        serde_saphyr::from_str(text).map_err(|error| error.to_string())
    }

    /// The scripts in tokens of `tokenizer`.
    pub(crate) fn encode(
        &self,
        tokenizer: &Tokenizer,
        context: u32,
        block_tokens: u32,
    ) -> Result<ScriptedConfig, String> {
        let scripts = self
            .scripts
            .iter()
            .map(|script| script.encode(tokenizer))
            .collect::<Result<_, _>>()?;
        let eos = *tokenizer.eos_ids().first().ok_or("the tokenizer has no end token")?;
        let vocabulary = tokenizer.vocabulary_len() as u32;
        Ok(ScriptedConfig {
            scripts,
            eos,
            vocabulary,
            context,
            block_tokens,
            step_us: self.step_us,
        })
    }
}

impl ScriptText {
    fn encode(&self, tokenizer: &Tokenizer) -> Result<Script, String> {
        let mut emit = Vec::new();
        for piece in &self.emit {
            match piece {
                Piece::Text(text) => emit.extend(tokenizer.encode(text, Specials::AsText)),
                Piece::Special(name) => {
                    emit.push(
                        tokenizer
                            .special_id(name)
                            .ok_or_else(|| format!("there is no control token '{name}'"))?,
                    );
                }
            }
        }
        Ok(Script {
            emit,
            tokens_per_step: self.tokens_per_step,
            then: self.then.clone(),
            stalls: self.stalls.clone(),
        })
    }
}
