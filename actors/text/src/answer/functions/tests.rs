use super::*;

fn functions(tools: &str) -> Functions {
    Functions::new(Some(&JsonText(tools.to_owned()))).unwrap()
}

const TOOLS: &str = r#"[{"type": "function", "function": {"name": "f.g", "parameters": {"properties": {
    "s": {"type": "string"}, "i": {"type": "integer"}, "n": {"type": ["string", "null"]},
    "a": {"anyOf": [{"type": "string"}, {"type": "null"}]}, "m": {"type": ["string", "integer"]}, "x": {}}}}},
    {"name": "bare"}]"#;

#[test]
fn values_are_typed_by_their_schema() {
    let functions = functions(TOOLS);
    let read = |key: &str, text: &str| functions.call("f.g", &[(key, text)]).arguments.0;
    for (key, text, json) in [
        ("s", "10115", r#"{"s":"10115"}"#),
        ("s", " \"q\"\n<b>", r#"{"s":" \"q\"\n<b>"}"#),
        ("s", "null", r#"{"s":"null"}"#),
        ("i", " 7\n", r#"{"i":7}"#),
        ("i", "seven", r#"{"i":"seven"}"#),
        ("n", "null", r#"{"n":null}"#),
        ("n", "1", r#"{"n":"1"}"#),
        ("a", "null", r#"{"a":null}"#),
        ("a", "true", r#"{"a":"true"}"#),
        ("m", "5", r#"{"m":5}"#),
        ("x", "[1, {\"k\": null}]", r#"{"x":[1, {"k": null}]}"#),
        ("x", "True", r#"{"x":"True"}"#),
        ("x", "", r#"{"x":""}"#),
        (
            "unknown",
            "12345678901234567890123",
            r#"{"unknown":12345678901234567890123}"#,
        ),
        ("k\"", "1", r#"{"k\"":1}"#),
    ] {
        assert_eq!(read(key, text), json);
        serde_json::from_str::<Value>(&read(key, text)).unwrap();
    }
}

#[test]
fn of_a_parameter_that_comes_twice_the_later_value_counts() {
    let call = functions(TOOLS).call("f.g", &[("i", "1"), ("s", "x"), ("i", "2")]);
    assert_eq!(call.arguments.0, r#"{"i":2,"s":"x"}"#);
}

#[test]
fn only_doubled_names_of_declared_functions_are_mended() {
    let functions = functions(TOOLS);
    let name = |written: &str| functions.call(written, &[]).name;
    assert_eq!(functions.names(), ["f.g", "bare"]);
    for (written, meant) in [
        ("f.g", "f.g"),
        ("f.g.f.g", "f.g"),
        ("bare.bare", "bare"),
        ("g", "g"),
        ("f.f", "f.f"),
        ("Bare", "Bare"),
        ("functions.bare", "functions.bare"),
        ("äö", "äö"),
    ] {
        assert_eq!(name(written), meant);
    }
}

#[test]
fn definitions_without_a_name_are_refused_by_place() {
    let place = |tools: &str| {
        Functions::new(Some(&JsonText(tools.to_owned())))
            .unwrap_err()
            .param
            .unwrap()
    };
    assert_eq!(place("{}"), "tools");
    assert_eq!(place(r#"[{"name": "a"}, {"function": {}}]"#), "tools[1].function.name");
    assert_eq!(place(r#"[{"function": {"name": ""}}]"#), "tools[0].function.name");
}
