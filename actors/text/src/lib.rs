//! Between text and token ids, for one model: tokenizers, chat templates, detokenizing and stop matching.
//!
//! ```text
//! ChatPrompt ─ Template::render ─▶ Prompt ─┐
//! text ────────────────────────────────────┴─ Tokenizer::encode… ─▶ token ids ─▶ (the model)
//! (the model) ─▶ token ids ─ AnswerReader::push ─▶ reasoning, content, calls ─ StopMatcher::push ─▶ text for the client
//! ```
//!
//! | module | noun |
//! |---|---|
//! | `source` | what a model brings: tokenizer.json and its companions, or the vocabulary of a GGUF file |
//! | `tokenizer` | the door: text to ids and back, the ids that end an answer |
//! | `pipeline`, `words`, `added`, `vocabulary`, `byte_level` | how text becomes ids, and what bytes an id stands for |
//! | `template`, `controls` | a conversation to a prompt in which what users typed stays text |
//! | `media` | the places of pictures and sounds in a prompt |
//! | `detokenizer` | ids to text, piece by piece, never half a character |
//! | `answer` | reasoning, content and calls of functions, told apart as each family of models marks them |
//! | `stop` | finds stop strings in text that arrives in pieces |
//!
//! Deliberately absent: files, networks, clocks (the time of a template is an argument), and requests as a whole; the
//! tokenizer actor of `cluster-roles` puts these parts together. Not here yet, but at home here: grammar masks (`grammar`).
#![warn(missing_docs)]

mod added;
mod answer;
mod byte_level;
mod controls;
mod detokenizer;
mod error;
mod media;
mod pipeline;
mod source;
mod stop;
mod template;
mod tokenizer;
mod vocabulary;
mod words;

pub use answer::{AnswerEvent, AnswerFormat, AnswerReader, FunctionCall};
pub use controls::Prompt;
pub use detokenizer::Detokenizer;
pub use error::TextError;
pub use media::{MediaSupport, MediumPlace};
pub use source::{GgufVocabulary, JsonFiles, TokenizerSource};
pub use stop::{Pushed, StopMatcher};
pub use template::Template;
pub use tokenizer::{Specials, Tokenizer};
