use super::*;

fn refusal(body: &str) -> ApiError {
    Json::parse(body.as_bytes()).expect_err("the body is refused")
}

#[test]
fn values_of_every_kind_survive_and_serialize_back() {
    let body = r#"{"a":[null,true,-1,18446744073709551615,0.5,"x\n"],"b":{}}"#;
    let json = Json::parse(body.as_bytes()).unwrap();
    assert_eq!(serde_json::to_string(&json).unwrap(), body);
}

#[test]
fn plain_strings_are_not_copied() {
    let json = Json::parse(br#"["plain","esc\"aped"]"#).unwrap();
    let Json::List(items) = json else { panic!("a list") };
    assert!(matches!(&items[0], Json::Text(Cow::Borrowed("plain"))));
    assert!(matches!(&items[1], Json::Text(Cow::Owned(text)) if text == "esc\"aped"));
}

#[test]
fn a_key_that_appears_twice_is_refused_at_any_depth_and_size() {
    let error = refusal(r#"{"m":[{"x":1,"y":2,"x":3}]}"#);
    assert!(
        error.message.contains("the key \"x\" appears twice"),
        "{}",
        error.message
    );
    assert_eq!(error.param.as_deref(), Some("m[0]"));
    let many: Vec<String> = (0..40).map(|i| format!("\"k{}\":0", i % 39)).collect();
    let error = refusal(&format!("{{{}}}", many.join(",")));
    assert!(
        error.message.contains("the key \"k0\" appears twice"),
        "{}",
        error.message
    );
    // Escapes do not hide it.
    assert!(refusal(r#"{"a":1,"\u0061":2}"#).message.contains("twice"));
}

#[test]
fn lone_surrogates_are_refused_where_they_stand_and_pairs_are_text() {
    for half in [r"emoji \ud83d", r"x \ude00 y", r"\udcf0", r"\ud83d\ud83d", r"\ud83dA"] {
        let error = refusal(&format!(r#"{{"messages":[{{"role":"user","content":"{half}"}}]}}"#));
        assert_eq!(error.param.as_deref(), Some("messages[0].content"), "{half}");
    }
    let pair = Json::parse(br#""ok \ud83d\ude00""#).unwrap();
    assert_eq!(pair, Json::Text("ok 😀".into()));
}

#[test]
fn deep_nesting_is_refused_without_a_long_answer() {
    let error = refusal(&"[".repeat(200_000));
    assert!(error.message.contains("recursion limit"), "{}", error.message);
    assert!(error.message.len() < 200 && error.param.is_none());
}

#[test]
fn what_is_not_json_is_refused() {
    for body in ["", "{", "[1,]", "nul", "{} x", "\"a", "1e999", "NaN", "{\"a\":\u{1}}"] {
        let message = refusal(body).message;
        assert!(message.starts_with("the body is not valid JSON: "), "{body}: {message}");
        assert!(!message.contains("serde"), "{message}");
    }
    assert!(Json::parse(b"\"\xff\"").is_err());
}
