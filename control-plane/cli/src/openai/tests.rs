use hyper::StatusCode;

use super::*;

#[test]
fn urls_with_and_without_the_version_mean_the_same() {
    for url in ["http://h:1", "http://h:1/", "http://h:1/v1", "http://h:1/v1/"] {
        let api = OpenAi::new(url, None).unwrap();
        assert_eq!((api.authority.as_str(), api.prefix.as_str()), ("h:1", ""));
    }
    assert_eq!(OpenAi::new("http://h/a/v1", None).unwrap().prefix, "/a");
    for url in ["", "h:1", "https://h", "/v1", "ftp://h"] {
        assert_eq!(OpenAi::new(url, None).unwrap_err().exit_code(), 2, "{url}");
    }
}

#[test]
fn chunks_are_read_leniently_and_errors_are_told() {
    let piece = |event| chunk::piece(event);
    let text = piece(r#"{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}"#).unwrap();
    assert_eq!((text.text.as_str(), text.finish_reason), ("a", None));
    let first = piece(r#"{"choices":[{"delta":{"role":"assistant"}}]}"#).unwrap();
    assert_eq!(first, Piece::default());
    let last = piece(r#"{"choices":[{"delta":{},"finish_reason":"length"}]}"#).unwrap();
    assert_eq!(last.finish_reason.as_deref(), Some("length"));
    assert_eq!(piece(r#"{"choices":[],"usage":{}}"#).unwrap(), Piece::default());

    let error = piece(r#"{"error":{"message":"lost","type":"x"}}"#).unwrap_err();
    assert_eq!(error.to_string(), "error: lost");
    assert!(piece("nonsense").is_err());
}

#[test]
fn error_answers_are_told_in_the_servers_words() {
    let body = br#"{"error":{"message":"model 'x' is not served","code":"model_not_found"}}"#;
    assert_eq!(
        chunk::error_message(StatusCode::NOT_FOUND, body),
        "model 'x' is not served"
    );
    assert_eq!(
        chunk::error_message(StatusCode::BAD_GATEWAY, b"<html>"),
        "the server answered 502 Bad Gateway"
    );
}
