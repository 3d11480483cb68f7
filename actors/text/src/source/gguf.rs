//! The vocabulary of a GGUF file.

use std::collections::{HashMap, HashSet};

use serde_json::{Value, json};
use tokenizers::{
    NormalizerWrapper, PreTokenizerWrapper,
    models::bpe::{BPE, Merges, Vocab},
};

use super::{GgufVocabulary, Parts, scores, sentence_piece_bytes};
use crate::{TextError, added::Added, byte_level, vocabulary::Entry, words::GPT2};

/// Token types that matter here.
const UNKNOWN: u32 = 2;
const CONTROL: u32 = 3;
const USER_DEFINED: u32 = 4;
const UNUSED: u32 = 5;
const BYTE: u32 = 6;

/// Control tokens that end an answer or a turn in the common families; few files name more than one of theirs.
const ENDINGS: [&str; 12] = [
    "<|eot_id|>",
    "<|eom_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|eot|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<end_of_turn>",
    "<｜end▁of▁sentence｜>",
    "</s>",
    "<EOT>",
    "[EOS]",
];

/// How a byte-level vocabulary cuts text into words.
struct WordRule {
    names: &'static [&'static str],
    expression: &'static str,
    single_digits: bool,
    /// Text is brought into the canonical composition of Unicode first.
    composed: bool,
    /// A word that is a token is taken whole, and a text begins with `bos` unless the file says otherwise.
    llama3: bool,
}

const WORD_RULES: [WordRule; 4] = [
    WordRule {
        names: &["gpt-2", "default", "phi-2", "mpt", "olmo"],
        expression: GPT2,
        single_digits: false,
        composed: false,
        llama3: false,
    },
    WordRule {
        names: &["smollm", "starcoder", "refact", "command-r", "codeshell"],
        expression: GPT2,
        single_digits: true,
        composed: false,
        llama3: false,
    },
    WordRule {
        names: &["qwen2", "deepseek-r1-qwen"],
        expression: r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        single_digits: false,
        composed: true,
        llama3: false,
    },
    WordRule {
        names: &["llama-bpe", "llama3", "llama-v3"],
        expression: r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        single_digits: false,
        composed: false,
        llama3: true,
    },
];

pub(super) fn parts(vocabulary: GgufVocabulary) -> Result<Parts, TextError> {
    check(&vocabulary)?;
    match vocabulary.model.as_str() {
        "gpt2" => byte_level_parts(vocabulary),
        "llama" => sentence_piece_parts(vocabulary),
        other => Err(TextError::Kind(other.to_owned())),
    }
}

fn check(vocabulary: &GgufVocabulary) -> Result<(), TextError> {
    let len = vocabulary.tokens.len();
    let broken = |problem: String| Err(TextError::Vocabulary(problem));
    if len == 0 {
        return broken("tokenizer.ggml.tokens is empty".to_owned());
    }
    for (key, found) in [
        ("token_type", vocabulary.token_types.len()),
        ("scores", vocabulary.scores.len()),
    ] {
        if found != 0 && found != len {
            return broken(format!("tokenizer.ggml.{key} has {found} entries for {len} tokens"));
        }
    }
    let named = [
        ("bos", vocabulary.bos),
        ("eos", vocabulary.eos),
        ("eot", vocabulary.eot),
        ("eom", vocabulary.eom),
        ("unknown", vocabulary.unknown),
        ("padding", vocabulary.padding),
    ];
    for (name, id) in named {
        if let Some(id) = id.filter(|id| *id as usize >= len) {
            return broken(format!(
                "tokenizer.ggml.{name}_token_id is {id}, but there are {len} tokens"
            ));
        }
    }
    Ok(())
}

fn byte_level_parts(vocabulary: GgufVocabulary) -> Result<Parts, TextError> {
    let rule = word_rule(vocabulary.pre.as_deref())?;
    let words: HashMap<&str, u32> = vocabulary
        .ids()
        .filter(|id| vocabulary.is_word(*id))
        .map(|id| (vocabulary.token(id), id))
        .collect();
    let model = BPE::builder()
        .vocab_and_merges(owned(&words), merges(&vocabulary, &words)?)
        .ignore_merges(rule.llama3)
        .build()
        .map_err(|error| TextError::Vocabulary(error.to_string()))?;
    let alphabet = byte_level::alphabet();
    let spell = |token: &str| byte_level::bytes_of(token, &alphabet).unwrap_or_else(|| token.as_bytes().to_vec());
    let add_bos = vocabulary.add_bos.unwrap_or(rule.llama3);
    let normalizer = rule.composed.then(|| json!({"type": "NFC"}));
    Ok(Parts {
        normalizer: normalizer.map(built_in::<NormalizerWrapper>),
        pre_tokenizer: Some(built_in::<PreTokenizerWrapper>(rule.pre_tokenizer())),
        ..vocabulary.into_parts(model, add_bos, false, &spell)
    })
}

fn sentence_piece_parts(vocabulary: GgufVocabulary) -> Result<Parts, TextError> {
    if vocabulary.scores.is_empty() {
        let problem = "tokenizer.ggml.scores is missing, which the model llama needs".to_owned();
        return Err(TextError::Vocabulary(problem));
    }
    // Bytes are in the vocabulary for characters that have no token, but no merge leads to them.
    let words: HashMap<&str, u32> = vocabulary
        .ids()
        .filter(|id| vocabulary.is_word(*id) || vocabulary.kind(*id) == BYTE)
        .map(|id| (vocabulary.token(id), id))
        .collect();
    let pieces: HashMap<&str, u32> = vocabulary
        .ids()
        .filter(|id| vocabulary.is_word(*id))
        .map(|id| (vocabulary.token(id), id))
        .collect();
    let unknown = vocabulary.unknown.map(|id| vocabulary.token(id).to_owned());
    let mut known = owned(&words);
    known.extend(vocabulary.unknown.map(|id| (vocabulary.token(id).to_owned(), id)));
    let mut builder = BPE::builder()
        .vocab_and_merges(known, scores::merges(&pieces, &vocabulary.scores))
        .byte_fallback(true)
        .fuse_unk(true);
    if let Some(unknown) = unknown {
        builder = builder.unk_token(unknown);
    }
    let model = builder
        .build()
        .map_err(|error| TextError::Vocabulary(error.to_string()))?;
    let begins_with_blank = vocabulary.add_space_prefix.unwrap_or(true);
    let add_bos = vocabulary.add_bos.unwrap_or(true);
    let blanks = json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"});
    let first = begins_with_blank.then(|| json!({"type": "Prepend", "prepend": "▁"}));
    let steps: Vec<Value> = first.into_iter().chain([blanks]).collect();
    Ok(Parts {
        normalizer: Some(built_in(json!({"type": "Sequence", "normalizers": steps}))),
        ..vocabulary.into_parts(model, add_bos, begins_with_blank, &sentence_piece_bytes)
    })
}

fn word_rule(pre: Option<&str>) -> Result<&'static WordRule, TextError> {
    let name = pre.unwrap_or("default");
    WORD_RULES
        .iter()
        .find(|rule| rule.names.contains(&name))
        .ok_or_else(|| TextError::WordRule {
            found: name.to_owned(),
            supported: WORD_RULES
                .iter()
                .flat_map(|rule| rule.names)
                .copied()
                .collect::<Vec<_>>()
                .join(", "),
        })
}

impl WordRule {
    /// The rule in the words of tokenizer.json.
    fn pre_tokenizer(&self) -> Value {
        let bytes = |use_regex: bool| json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": use_regex});
        let digits = json!({"type": "Digits", "individual_digits": true});
        let split = json!({
            "type": "Split", "pattern": {"Regex": self.expression}, "behavior": "Isolated", "invert": false,
        });
        let steps = match (self.expression == GPT2, self.single_digits) {
            (true, false) => vec![bytes(true)],
            (true, true) => vec![digits, bytes(true)],
            (false, _) => vec![split, bytes(false)],
        };
        json!({"type": "Sequence", "pretokenizers": steps})
    }
}

fn built_in<T: serde::de::DeserializeOwned>(rules: Value) -> T {
    serde_json::from_value(rules).expect("the rules are written out in this file and each is used by a test")
}

fn owned(words: &HashMap<&str, u32>) -> Vocab {
    words.iter().map(|(token, id)| ((*token).to_owned(), *id)).collect()
}

/// The pairs to merge. Those that would make a control token are left out: text must not become one.
fn merges(vocabulary: &GgufVocabulary, words: &HashMap<&str, u32>) -> Result<Merges, TextError> {
    let structure: HashSet<&str> = vocabulary
        .ids()
        .filter(|id| !vocabulary.is_word(*id))
        .map(|id| vocabulary.token(id))
        .collect();
    let mut merges = Merges::with_capacity(vocabulary.merges.len());
    for merge in &vocabulary.merges {
        let broken = |problem: &str| TextError::Vocabulary(format!("tokenizer.ggml.merges has `{merge}`, {problem}"));
        let (left, right) = merge.split_once(' ').ok_or_else(|| broken("which is not two tokens"))?;
        let whole = format!("{left}{right}");
        let parts = [left, right, whole.as_str()];
        if parts.iter().any(|part| structure.contains(part)) {
            continue;
        }
        if parts.iter().any(|part| !words.contains_key(part)) {
            return Err(broken("but these or their union are not tokens"));
        }
        merges.push((left.to_owned(), right.to_owned()));
    }
    Ok(merges)
}

impl GgufVocabulary {
    fn ids(&self) -> impl Iterator<Item = u32> {
        0..self.tokens.len() as u32
    }

    fn token(&self, id: u32) -> &str {
        &self.tokens[id as usize]
    }

    fn kind(&self, id: u32) -> u32 {
        self.token_types.get(id as usize).copied().unwrap_or(1)
    }

    /// Whether the token can come out of text by merging.
    fn is_word(&self, id: u32) -> bool {
        !matches!(self.kind(id), UNKNOWN | CONTROL | UNUSED | BYTE)
    }

    fn is_control(&self, id: u32) -> bool {
        matches!(self.kind(id), CONTROL | UNKNOWN)
    }

    fn into_parts(self, model: BPE, add_bos: bool, begins_with_blank: bool, spell: &dyn Fn(&str) -> Vec<u8>) -> Parts {
        let added = self
            .ids()
            .filter(|id| self.is_control(*id) || self.kind(*id) == USER_DEFINED);
        let added = added
            .map(|id| Added::plain(id, self.token(id), self.is_control(id)))
            .collect();
        let entry = |id| Entry {
            bytes: if self.is_control(id) {
                self.token(id).as_bytes().to_vec()
            } else {
                spell(self.token(id))
            },
            special: self.is_control(id),
        };
        Parts {
            model: model.into(),
            normalizer: None,
            pre_tokenizer: None,
            added,
            entries: self.ids().map(entry).collect(),
            begins_with_blank,
            bos: self.bos,
            prefix: self.bos.filter(|_| add_bos).into_iter().collect(),
            eos: self.endings(),
            named_tokens: self.named_tokens(),
            chat_template: self.chat_template,
        }
    }

    fn endings(&self) -> Vec<u32> {
        let by_text = self
            .ids()
            .filter(|id| self.kind(*id) == CONTROL && ENDINGS.contains(&self.token(*id)));
        let mut endings: Vec<u32> = by_text.chain(self.eos).chain(self.eot).chain(self.eom).collect();
        endings.sort_unstable();
        endings.dedup();
        endings
    }

    fn named_tokens(&self) -> Vec<(String, String)> {
        let ids = [
            ("bos_token", self.bos),
            ("eos_token", self.eos),
            ("unk_token", self.unknown),
            ("pad_token", self.padding),
        ];
        let named = ids
            .into_iter()
            .filter_map(|(name, id)| Some((name.to_owned(), self.token(id?).to_owned())));
        named.collect()
    }
}
