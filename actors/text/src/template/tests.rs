use serde_json::Value as Json;

use super::*;
use conversation::template_value;

fn template(source: &str) -> Template {
    let named = [
        ("bos_token".to_owned(), "<s>".to_owned()),
        ("eos_token".to_owned(), "</s>".to_owned()),
    ];
    Template::new(source, &named, &["<s>", "</s>"]).unwrap()
}

fn variables(json: &Json) -> Vec<(String, Value)> {
    let fields = json.as_object().unwrap().clone();
    fields
        .into_iter()
        .map(|(name, value)| (name, template_value(value)))
        .collect()
}

/// The cases were recorded from Jinja 3.1 with the filters and functions that the `transformers` library adds.
#[test]
fn templates_behave_as_in_python() {
    let file: Json = serde_json::from_str(include_str!("../../tests/fixtures/jinja-cases.json")).unwrap();
    let now_s = file["now_s"].as_u64().unwrap();
    let mut differences = Vec::new();
    for case in file["cases"].as_array().unwrap() {
        let template = template(case["template"].as_str().unwrap());
        let found = template.render_variables(variables(&file["variables"]), now_s);
        let (found, expected) = match found {
            Ok(text) => (text, case["text"].as_str().map(str::to_owned)),
            Err(refusal) if case["raises"].is_string() => (refusal.reason, case["raises"].as_str().map(str::to_owned)),
            Err(refusal) => (format!("{}: {}", refusal.what, refusal.reason), None),
        };
        if case["text"].is_string() || case["raises"].is_string() {
            if Some(&found) != expected.as_ref() {
                differences.push(format!(
                    "{}:\n  found    {found:?}\n  expected {expected:?}",
                    case["name"]
                ));
            }
        } else {
            assert!(found.starts_with("cannot render"), "{found}");
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

fn one(text: &str) -> ChatPrompt {
    let message = cluster_messages::ChatMessage {
        role: "user".to_owned(),
        content: Some(cluster_messages::Content::Text(text.to_owned())),
        ..cluster_messages::ChatMessage::default()
    };
    ChatPrompt {
        messages: vec![message],
        ..ChatPrompt::default()
    }
}

#[test]
fn content_goes_in_as_the_template_wants_it() {
    let parts = template(
        "{% for part in messages[0].content %}{% if part.type == 'text' %}[{{ part.text }}]{% endif %}{% endfor %}",
    );
    assert_eq!(parts.render(&one("hi"), 0).unwrap().text(), "[hi]");
    let text = template("{{ messages[0].content | upper }}");
    assert_eq!(text.render(&one("hi"), 0).unwrap().text(), "HI");
}

#[test]
fn a_continued_message_ends_as_the_template_shows_it() {
    let chat = ChatPrompt {
        continue_final: true,
        ..one("  and so ")
    };
    let text = |source| {
        template(source)
            .render(&chat, 0)
            .map(|prompt| prompt.text().into_owned())
    };
    assert_eq!(text("<{{ messages[0].content }}>"), Ok("<  and so ".to_owned()));
    assert_eq!(text("<{{ messages[0].content | trim }}>"), Ok("<and so".to_owned()));
    let error = text("nothing").unwrap_err();
    assert_eq!(
        error.message,
        "the model's chat template does not show the message to continue"
    );
}

#[test]
fn training_marks_are_transparent() {
    let template =
        template("a\n{%- generation -%} {{ messages[0].content }} {%- endgeneration %}{% if false %}b{% endif %}");
    assert_eq!(template.render(&one("x"), 0).unwrap().text(), "ax");
}

#[test]
fn endless_templates_are_stopped() {
    let loops = "{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) %}{% endfor %}{% endfor %}{% endfor %}";
    for source in [
        loops,
        "{{ 'a' * 9999999999 }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    ] {
        let mut template = template(source);
        // The true limit takes an unoptimized build a while.
        template.environment.set_fuel(Some(100_000));
        let error = template.render(&one("x"), 0).unwrap_err();
        assert_eq!(error.param.as_deref(), Some("messages"), "{error}");
    }
}

#[test]
fn unusable_templates_say_why() {
    let error = |source| Template::new(source, &[], &[]).unwrap_err().to_string();
    assert!(error("{% if %}").starts_with("the chat template cannot be used: syntax error"));
    assert!(error("\u{100000}").ends_with("it writes characters from U+100000 on, which are reserved"));
}
