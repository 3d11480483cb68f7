use serde_json::{Value, json};
use tokenizers::Tokenizer;

use super::*;

/// A tokenizer.json of single characters and the given merges, with `<s>` as control token.
fn reference(characters: &str, merges: &[(&str, &str)], rules: &Value) -> Tokenizer {
    let unions = merges.iter().map(|(left, right)| format!("{left}{right}"));
    let tokens: Vec<String> = characters.chars().map(String::from).chain(unions).collect();
    let mut vocabulary: serde_json::Map<String, Value> = tokens
        .iter()
        .enumerate()
        .map(|(id, token)| (token.clone(), json!(id)))
        .collect();
    let next = tokens.len();
    let control = vocabulary.entry("<s>").or_insert(json!(next)).clone();
    let flags = json!({
        "id": control, "content": "<s>", "special": true,
        "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
    });
    let merges: Vec<Value> = merges.iter().map(|(left, right)| json!([left, right])).collect();
    let file = json!({
        "version": "1.0", "added_tokens": [flags], "normalizer": rules["normalizer"],
        "pre_tokenizer": rules["pre_tokenizer"],
        "model": {"type": "BPE", "vocab": vocabulary, "merges": merges},
    });
    Tokenizer::from_bytes(serde_json::to_vec(&file).unwrap()).unwrap()
}

fn pipeline(reference: &Tokenizer) -> Pipeline {
    let control = Added::plain(reference.token_to_id("<s>").unwrap(), "<s>", true);
    Pipeline::new(
        reference.get_model().clone(),
        reference.get_normalizer().cloned(),
        reference.get_pre_tokenizer().cloned(),
        vec![control],
    )
    .unwrap()
}

fn parsed(pipeline: &Pipeline, text: &str) -> Vec<u32> {
    let pieces: Vec<Piece<'_>> = pipeline
        .at_controls(text)
        .into_iter()
        .map(|(text, control)| control.map_or(Piece::Text(text.into()), Piece::Control))
        .collect();
    pipeline.encode(&pieces)
}

/// Merges can lead to a control token where the words allow it.
#[test]
fn merges_never_lead_to_a_control_token() {
    let reference = reference("<s>", &[("<", "s"), ("<s", ">")], &Value::Null);
    let pipeline = pipeline(&reference);
    assert_eq!(reference.encode("<s>", false).unwrap().get_ids(), [4]);
    assert_eq!(parsed(&pipeline, "<s>"), [4]);
    assert_eq!(pipeline.encode(&[Piece::Text("<s>".into())]), [0, 1, 2]);
}

/// A blank goes before the text, but not before what follows a control token.
#[test]
fn parts_of_a_text_do_not_begin_it() {
    let blanks = json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": false});
    let reference = reference("ab▁", &[("▁", "a")], &json!({"pre_tokenizer": blanks}));
    let pipeline = pipeline(&reference);
    for text in ["a<s>a b", "<s>a", "ab a", "<s> a<s>"] {
        assert_eq!(
            parsed(&pipeline, text),
            reference.encode(text, false).unwrap().get_ids(),
            "{text}"
        );
    }
}

/// The unknown token of this vocabulary is missing, so that the reference fails on characters without a token.
#[test]
fn a_text_that_the_model_fails_on_still_has_ids() {
    let mut file = serde_json::to_value(reference("abc", &[("a", "b")], &Value::Null)).unwrap();
    file["model"]["unk_token"] = json!("<missing>");
    let reference = Tokenizer::from_bytes(serde_json::to_vec(&file).unwrap()).unwrap();
    assert!(reference.encode("a?", false).is_err());
    assert_eq!(
        pipeline(&reference).encode(&[Piece::Text("ab??é?cab".into())]),
        [3, 2, 3]
    );
    assert_eq!(pipeline(&reference).encode(&[Piece::Text("?".into())]), [0; 0]);
}
