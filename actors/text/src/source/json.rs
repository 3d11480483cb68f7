//! tokenizer.json and its companions.

use serde_json::Value;
use tokenizers::{DecoderWrapper, PostProcessor, Tokenizer, pre_tokenizers::metaspace::PrependScheme};

use super::{JsonFiles, Parts, sentence_piece_bytes};
use crate::{TextError, added::Added, byte_level, vocabulary::Entry};

/// Ids are places in a table, so a file with one absurd id would take all memory. The largest vocabularies have 300,000 tokens.
const TOKENS_MAX: usize = 1 << 24;

pub(super) fn parts(files: &JsonFiles) -> Result<Parts, TextError> {
    let tokenizer = Tokenizer::from_bytes(&files.tokenizer).map_err(|error| TextError::File {
        file: "tokenizer.json",
        reason: error.to_string(),
    })?;
    let config = parse("tokenizer_config.json", files.tokenizer_config.as_deref())?;
    let generation = parse("generation_config.json", files.generation_config.as_deref())?;
    let spelling = Spelling::of(tokenizer.get_decoder())?;
    let added = added_tokens(&tokenizer);
    let named_tokens = named_tokens(&config);
    let id_named = |name: &str| {
        let (_, content) = named_tokens.iter().find(|(found, _)| found == name)?;
        tokenizer.token_to_id(content)
    };
    let mut eos = ids(&generation["eos_token_id"]);
    eos.extend(id_named("eos_token"));
    eos.sort_unstable();
    eos.dedup();
    Ok(Parts {
        entries: entries(&tokenizer, &added, &spelling)?,
        begins_with_blank: spelling == Spelling::SentencePiece { drops_blank: true },
        bos: id_named("bos_token").or(ids(&generation["bos_token_id"]).first().copied()),
        prefix: prefix(&tokenizer),
        eos,
        chat_template: files
            .chat_template
            .clone()
            .or_else(|| template_of(&config["chat_template"])),
        named_tokens,
        model: tokenizer.get_model().clone(),
        normalizer: tokenizer.get_normalizer().cloned(),
        pre_tokenizer: tokenizer.get_pre_tokenizer().cloned(),
        added,
    })
}

fn parse(file: &'static str, bytes: Option<&[u8]>) -> Result<Value, TextError> {
    let Some(bytes) = bytes else {
        return Ok(Value::Null);
    };
    serde_json::from_slice(bytes).map_err(|error| TextError::File {
        file,
        reason: error.to_string(),
    })
}

/// How the strings of the vocabulary stand for bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Spelling {
    ByteLevel,
    SentencePiece { drops_blank: bool },
}

impl Spelling {
    fn of(decoder: Option<&DecoderWrapper>) -> Result<Self, TextError> {
        let unknown = |decoder: &str| Err(TextError::Spelling(decoder.to_owned()));
        match decoder {
            Some(DecoderWrapper::ByteLevel(_)) => Ok(Self::ByteLevel),
            Some(DecoderWrapper::Metaspace(metaspace)) => Ok(Self::SentencePiece {
                drops_blank: metaspace.get_prepend_scheme() != PrependScheme::Never,
            }),
            Some(DecoderWrapper::Sequence(sequence)) => Self::of_sequence(sequence.get_decoders()),
            Some(DecoderWrapper::BPE(_)) => unknown("BPEDecoder"),
            Some(DecoderWrapper::WordPiece(_)) => unknown("WordPiece"),
            Some(DecoderWrapper::CTC(_)) => unknown("CTC"),
            Some(_) => unknown("with a single step"),
            None => unknown("none"),
        }
    }

    fn of_sequence(steps: &[DecoderWrapper]) -> Result<Self, TextError> {
        let mut drops_blank = false;
        for step in steps {
            match step {
                DecoderWrapper::ByteLevel(_) | DecoderWrapper::Metaspace(_) => return Self::of(Some(step)),
                DecoderWrapper::Strip(strip) => drops_blank |= strip.content == ' ' && strip.start > 0,
                DecoderWrapper::Replace(_) | DecoderWrapper::ByteFallback(_) | DecoderWrapper::Fuse(_) => {}
                _ => return Self::of(Some(step)),
            }
        }
        Ok(Self::SentencePiece { drops_blank })
    }
}

fn added_tokens(tokenizer: &Tokenizer) -> Vec<Added> {
    let mut added: Vec<Added> = tokenizer
        .get_added_tokens_decoder()
        .into_iter()
        .map(|(id, token)| Added {
            id,
            content: token.content,
            control: token.special,
            normalized: token.normalized,
            lstrip: token.lstrip,
            rstrip: token.rstrip,
            single_word: token.single_word,
        })
        .collect();
    added.sort_unstable_by_key(|token| token.id);
    added
}

fn entries(tokenizer: &Tokenizer, added: &[Added], spelling: &Spelling) -> Result<Vec<Entry>, TextError> {
    let vocabulary = tokenizer.get_vocab(true);
    let len = vocabulary.values().max().map_or(0, |id| *id as usize + 1);
    if len > TOKENS_MAX {
        let problem = format!("tokenizer.json has the id {}; the limit is {TOKENS_MAX}", len - 1);
        return Err(TextError::Vocabulary(problem));
    }
    let mut entries = vec![Entry::default(); len];
    let alphabet = byte_level::alphabet();
    for (token, id) in &vocabulary {
        entries[*id as usize].bytes = match spelling {
            Spelling::ByteLevel => byte_level::bytes_of(token, &alphabet).unwrap_or_else(|| token.clone().into_bytes()),
            Spelling::SentencePiece { .. } => sentence_piece_bytes(token),
        };
    }
    // Added tokens are written as they are, whatever the spelling of the others.
    for token in added {
        entries[token.id as usize] = Entry {
            bytes: match spelling {
                Spelling::SentencePiece { .. } if !token.control => sentence_piece_bytes(&token.content),
                _ => token.content.clone().into_bytes(),
            },
            special: token.control,
        };
    }
    Ok(entries)
}

/// `bos_token` and its like, from plain strings or from `{"content": …}`.
fn named_tokens(config: &Value) -> Vec<(String, String)> {
    let tokens = config
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(name, _)| name.ends_with("_token"));
    tokens
        .filter_map(|(name, token)| {
            let content = token.as_str().or_else(|| token["content"].as_str())?;
            Some((name.clone(), content.to_owned()))
        })
        .collect()
}

/// One template, or several with names, of which the one named `default` is for every conversation.
fn template_of(template: &Value) -> Option<String> {
    let named = |name: &str| {
        let mut templates = template.as_array()?.iter();
        templates.find(|template| template["name"] == name)?["template"].as_str()
    };
    template.as_str().or_else(|| named("default")).map(str::to_owned)
}

/// One id, or a list of ids.
fn ids(value: &Value) -> Vec<u32> {
    let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    match value {
        Value::Array(values) => values.iter().filter_map(id).collect(),
        value => id(value).into_iter().collect(),
    }
}

/// What the post-processor puts before a text.
fn prefix(tokenizer: &Tokenizer) -> Vec<u32> {
    let Some(post_processor) = tokenizer.get_post_processor() else {
        return Vec::new();
    };
    let Ok(text) = tokenizer.encode("a", false) else {
        return Vec::new();
    };
    let text_ids = text.get_ids().to_vec();
    let Ok(whole) = post_processor.process(text, None, true) else {
        return Vec::new();
    };
    let ids = whole.get_ids();
    let start = ids
        .windows(text_ids.len().max(1))
        .position(|window| window == text_ids)
        .unwrap_or(0);
    ids[..start].to_vec()
}
