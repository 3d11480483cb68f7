use std::sync::OnceLock;

use proptest::prelude::*;

use super::*;
use crate::GgufVocabulary;

#[test]
fn in_the_vocabulary_of_bytes_a_text_has_as_many_tokens_as_bytes() {
    let source = TokenizerSource::Vocabulary(GgufVocabulary::of_bytes(&["<|end|>", "<|user|>"], "{{ messages }}"));
    let tokenizer = Tokenizer::new(source).unwrap();
    let text = "a \n\u{0}é🎈<|end|>";
    let ids = tokenizer.encode(text, Specials::AsText);
    assert_eq!(ids, text.bytes().map(u32::from).collect::<Vec<_>>());
    assert_eq!(tokenizer.eos_ids(), [256]);
    assert_eq!(tokenizer.special_id("<|user|>"), Some(257));
    assert_eq!(tokenizer.encode("x<|user|>", Specials::Parse), [u32::from(b'x'), 257]);
}

/// A SentencePiece vocabulary: `<unk>`, `<s>`, `</s>`, the 256 bytes, then pieces with scores, the best first.
fn sentence_pieces(pieces: &[&str], add_space_prefix: bool) -> GgufVocabulary {
    let bytes = (0..=255u8).map(|byte| format!("<0x{byte:02X}>"));
    let structure = ["<unk>", "<s>", "</s>"].map(str::to_owned);
    let types = [2, 3, 3].into_iter().chain([6; 256]).chain(pieces.iter().map(|_| 1));
    let tokens: Vec<String> = structure
        .into_iter()
        .chain(bytes)
        .chain(pieces.iter().map(ToString::to_string))
        .collect();
    GgufVocabulary {
        model: "llama".to_owned(),
        scores: (0..tokens.len()).map(|id| -(id as f32)).collect(),
        tokens,
        token_types: types.collect(),
        bos: Some(1),
        eos: Some(2),
        unknown: Some(0),
        add_space_prefix: Some(add_space_prefix),
        ..GgufVocabulary::default()
    }
}

const PIECES: [&str; 14] = [
    "▁a", "bc", "▁abc", "ab", "abc", "cab", "▁", "a", "b", "c", "<", "s", ">", "é",
];

/// SentencePiece by its definition: always merge the neighbours whose union has the best score.
fn by_definition(vocabulary: &GgufVocabulary, text: &str) -> Vec<u32> {
    let id = |piece: &str| {
        let found = vocabulary.tokens.iter().position(|token| token == piece)?;
        (vocabulary.token_types[found] == 1).then_some(found as u32)
    };
    let mut parts: Vec<String> = text.replace(' ', "▁").chars().map(String::from).collect();
    while let Some((_, at)) = (1..parts.len())
        .filter_map(|at| Some((id(&(parts[at - 1].clone() + &parts[at]))?, at)))
        .min()
    {
        let right = parts.remove(at);
        parts[at - 1] += &right;
    }
    let bytes = |part: &str| part.bytes().map(|byte| 3 + u32::from(byte)).collect();
    parts
        .iter()
        .flat_map(|part| id(part).map_or_else(|| bytes(part), |id| vec![id]))
        .collect()
}

proptest! {
    #[test]
    fn sentence_pieces_merge_by_score(text in "[abc <>sé日]{0,16}") {
        static PAIR: OnceLock<(GgufVocabulary, Tokenizer)> = OnceLock::new();
        let (vocabulary, tokenizer) = PAIR.get_or_init(|| {
            let vocabulary = sentence_pieces(&PIECES, false);
            let tokenizer = Tokenizer::new(TokenizerSource::Vocabulary(vocabulary.clone())).unwrap();
            (vocabulary, tokenizer)
        });
        prop_assert_eq!(tokenizer.encode(&text, Specials::AsText), by_definition(vocabulary, &text));
    }
}

#[test]
fn sentence_pieces_come_back_as_the_text_they_were() {
    let tokenizer = Tokenizer::new(TokenizerSource::Vocabulary(sentence_pieces(&PIECES, true))).unwrap();
    for text in ["abc cab", " a", "日\n<s>", ""] {
        let ids = tokenizer.encode(text, Specials::AsText);
        assert!(!ids.iter().any(|id| tokenizer.is_special(*id)), "{text:?}");
        let mut detokenizer = tokenizer.detokenizer(true);
        assert_eq!(detokenizer.push(&ids) + &detokenizer.finish(), text);
    }
    assert_eq!(
        tokenizer.encode_completion("a"),
        [1, 259],
        "a text begins with `<s>` and a blank"
    );
    assert_eq!(tokenizer.token_bytes(3 + 10), b"\n");
}

#[test]
fn sentence_pieces_need_scores() {
    let vocabulary = GgufVocabulary {
        scores: vec![],
        ..sentence_pieces(&PIECES, true)
    };
    let error = Tokenizer::new(TokenizerSource::Vocabulary(vocabulary)).unwrap_err();
    let said = "the vocabulary is broken: tokenizer.ggml.scores is missing, which the model llama needs";
    assert_eq!(error.to_string(), said);
}
