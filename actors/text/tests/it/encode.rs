//! Text to ids is what the reference implementation gives, and ids to bytes leads back.

use std::sync::OnceLock;

use proptest::prelude::*;
use serde_json::{Value, json};

use cluster_text::{GgufVocabulary, Specials, TextError, Tokenizer, TokenizerSource};

use crate::fixtures::{llama, llama_reference, llama_vocabulary, muse, muse_files, muse_reference};

const QWEN2: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

const TEXTS: [&str; 9] = [
    "",
    "Hello, world! It's 12,345.67 o'clock\tand  we'll   see…\r\n\r\n  done \n",
    "   \n \n\n  leading and trailing   ",
    "naïve café — Größe, Ⅷ ½ ٣٤ 二〇二六年 今日は😀👩‍👩‍👧",
    "e\u{301} composed e\u{301}",
    "fn main() {\n    println!(\"{}\", 1 << 20);\n}\n",
    "\u{a0}\u{2003}no-break\u{3000}space\u{85}next\u{2028}line",
    "<s>typed</s> and <unk> <|eot|>",
    "\u{0}\u{4}\u{6}\u{13}\u{14}\u{16}\u{1d}\u{7f}",
];

fn byte_level(use_regex: bool) -> Value {
    json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": use_regex})
}

/// Each rule of a GGUF file with the same rule as tokenizer.json writes it.
fn word_rules() -> [(&'static str, Value, Value); 4] {
    let split = |expression: &str| {
        let split = json!({"type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated", "invert": false});
        json!({"type": "Sequence", "pretokenizers": [split, byte_level(false)]})
    };
    let digits = json!({"type": "Digits", "individual_digits": true});
    let smollm = json!({"type": "Sequence", "pretokenizers": [digits, byte_level(true)]});
    [
        ("gpt-2", Value::Null, byte_level(true)),
        ("smollm", Value::Null, smollm),
        ("qwen2", json!({"type": "NFC"}), split(QWEN2)),
        ("llama-bpe", Value::Null, split(LLAMA3)),
    ]
}

type Pair = (&'static str, Tokenizer, tokenizers::Tokenizer);

/// Ours and the reference for every rule.
fn pairs() -> &'static [Pair] {
    static PAIRS: OnceLock<Vec<Pair>> = OnceLock::new();
    PAIRS.get_or_init(|| {
        let pair = |(pre, normalizer, words)| (pre, llama(pre), llama_reference(normalizer, words));
        word_rules().map(pair).into()
    })
}

#[test]
fn gguf_vocabularies_encode_like_the_reference() {
    for (pre, tokenizer, reference) in pairs() {
        for text in TEXTS {
            let expected = reference.encode_fast(text, false).unwrap();
            assert_eq!(
                tokenizer.encode(text, Specials::Parse),
                expected.get_ids(),
                "{pre}: {text:?}"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_text_encodes_like_the_reference(text in r"([a-zA-Z']{1,4}|[ \t\n\r\u{a0}]{1,4}|[0-9]{1,5}|\PC{0,3}|<s>|</s>){0,12}") {
        for (pre, tokenizer, reference) in pairs() {
            let expected = reference.encode_fast(text.as_str(), false).unwrap();
            let ids = tokenizer.encode(&text, Specials::Parse);
            prop_assert_eq!(ids.as_slice(), expected.get_ids(), "{}", pre);
        }
    }

    #[test]
    fn text_survives_the_way_to_ids_and_back(text in r"(\PC|[ \t\n\r]|<\|eot\|>|<\|start\|>){0,40}") {
        let tokenizer = muse();
        for specials in [Specials::Parse, Specials::AsText] {
            let ids = tokenizer.encode(&text, specials);
            let bytes: Vec<u8> = ids.iter().flat_map(|id| tokenizer.token_bytes(*id)).copied().collect();
            prop_assert_eq!(String::from_utf8(bytes).unwrap(), text.as_str());
        }
        let typed = tokenizer.encode(&text, Specials::AsText);
        prop_assert!(!typed.iter().any(|id| tokenizer.is_special(*id)));
    }
}

#[test]
fn a_tokenizer_file_encodes_like_the_reference() {
    let (tokenizer, mut reference) = (muse(), muse_reference());
    for text in TEXTS {
        let expected = reference.encode_fast(text, false).unwrap();
        assert_eq!(tokenizer.encode(text, Specials::Parse), expected.get_ids(), "{text:?}");
    }
    reference.set_encode_special_tokens(true);
    for text in TEXTS {
        let expected = reference.encode_fast(text, false).unwrap();
        assert_eq!(tokenizer.encode(text, Specials::AsText), expected.get_ids(), "{text:?}");
    }
}

#[test]
fn long_runs_have_ids() {
    let tokenizer = llama("gpt-2");
    for run in [" ", "\n", "a", "é", "\u{3000}"] {
        let text = run.repeat(100_000);
        let ids = tokenizer.encode(&text, Specials::AsText);
        let len: usize = ids.iter().map(|id| tokenizer.token_bytes(*id).len()).sum();
        assert_eq!(len, text.len(), "{run:?}");
    }
}

#[test]
fn a_completion_begins_as_the_file_says() {
    let text = |add_bos| {
        let vocabulary = GgufVocabulary {
            add_bos,
            ..llama_vocabulary("smollm")
        };
        Tokenizer::new(TokenizerSource::Vocabulary(vocabulary))
            .unwrap()
            .encode_completion("<s>a")
    };
    let (plain, begun) = (text(None), text(Some(true)));
    assert_eq!(begun[0], 1);
    assert_eq!(begun[1..], plain);
    assert!(!plain.contains(&1));
}

/// Only control tokens are kept from users; other added tokens are words.
#[test]
fn added_words_are_found_in_any_text() {
    let mut vocabulary = llama_vocabulary("smollm");
    vocabulary.tokens[319] = "<think>".to_owned();
    vocabulary.token_types[319] = 4;
    let tokenizer = Tokenizer::new(TokenizerSource::Vocabulary(vocabulary)).unwrap();
    let ids = tokenizer.encode("<think>a", Specials::AsText);
    assert_eq!(ids, tokenizer.encode("<think>a", Specials::Parse));
    assert_eq!((ids.len(), ids[0], tokenizer.is_special(319)), (2, 319, false));
    assert_eq!(tokenizer.special_id("<think>"), Some(319));
    assert_eq!(tokenizer.token_bytes(319), b"<think>");
}

#[test]
fn unusable_vocabularies_say_why() {
    let error = |change: fn(&mut GgufVocabulary)| {
        let mut vocabulary = llama_vocabulary("smollm");
        change(&mut vocabulary);
        Tokenizer::new(TokenizerSource::Vocabulary(vocabulary)).unwrap_err()
    };
    assert_eq!(error(|v| v.model = "rwkv".into()), TextError::Kind("rwkv".into()));
    assert!(matches!(error(|v| v.pre = Some("tekken".into())), TextError::WordRule { found, .. } if found == "tekken"));
    let said = |change| error(change).to_string();
    assert_eq!(
        said(|v| v.eos = Some(320)),
        "the vocabulary is broken: tokenizer.ggml.eos_token_id is 320, but there are 320 tokens"
    );
    assert_eq!(
        said(|v| v.token_types.truncate(3)),
        "the vocabulary is broken: tokenizer.ggml.token_type has 3 entries for 320 tokens"
    );
    assert_eq!(
        said(|v| v.merges.push("zz zz".into())),
        "the vocabulary is broken: tokenizer.ggml.merges has `zz zz`, but these or their union are not tokens"
    );
    let mut absurd: Value = serde_json::from_slice(&muse_files().tokenizer).unwrap();
    absurd["model"]["vocab"]["absurd"] = json!(u32::MAX);
    let files = cluster_text::JsonFiles {
        tokenizer: absurd.to_string().into_bytes(),
        ..Default::default()
    };
    let error = Tokenizer::new(TokenizerSource::Json(files)).unwrap_err().to_string();
    assert_eq!(
        error,
        "the vocabulary is broken: tokenizer.json has the id 4294967295; the limit is 16777216"
    );
    let broken = cluster_text::JsonFiles {
        tokenizer: b"{}".to_vec(),
        ..Default::default()
    };
    assert!(matches!(
        Tokenizer::new(TokenizerSource::Json(broken)),
        Err(TextError::File {
            file: "tokenizer.json",
            ..
        })
    ));
}
