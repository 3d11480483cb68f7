//! Answers through the door: tokens in, events out; and what a request's choice of tools makes of them.

use cluster_messages::{ChatPrompt, JsonText, ToolChoice};
use cluster_text::{AnswerEvent, AnswerFormat, FunctionCall, GgufVocabulary, Specials, Tokenizer, TokenizerSource};
use serde_json::{Value, json};

use crate::fixtures::{llama, muse, nano, nano_cases, prompt, user};

/// What is told apart in `ids`, and how many tokens of it are reasoning.
fn read(tokenizer: &Tokenizer, format: &AnswerFormat, ids: &[u32]) -> (Vec<AnswerEvent>, u32) {
    let mut reader = tokenizer.answer_reader(format);
    let mut events = Vec::new();
    for id in ids {
        reader.push(*id, &mut events);
    }
    reader.finish(&mut events);
    (events, reader.reasoning_tokens())
}

fn parsed(events: &[AnswerEvent]) -> Value {
    let (mut reasoning, mut content, mut calls) = (String::new(), String::new(), Vec::new());
    for event in events {
        match event {
            AnswerEvent::Reasoning(text) => reasoning.push_str(text),
            AnswerEvent::Content(text) => content.push_str(text),
            AnswerEvent::Call(FunctionCall { name, arguments }) => {
                let arguments: Value = serde_json::from_str(&arguments.0).unwrap();
                calls.push(json!({"name": name, "arguments": arguments}));
            }
        }
    }
    json!({"reasoning": reasoning, "content": content, "tool_calls": calls})
}

fn with_tools(tools: &Value) -> ChatPrompt {
    ChatPrompt {
        tools: tools.is_array().then(|| JsonText(tools.to_string())),
        ..prompt(vec![user("x")])
    }
}

fn format(tokenizer: &Tokenizer, tools: &Value) -> AnswerFormat {
    tokenizer.answer_format(&with_tools(tools), &ToolChoice::Auto).unwrap()
}

/// A vocabulary in which every byte is a token and no mark is one; only the template tells that the model is a Muse.
fn bytes_only() -> Tokenizer {
    let template = "<|start|>user<|message|>{{ messages[0].content }}<|eot|>{# <|eom|> #}";
    Tokenizer::new(TokenizerSource::Vocabulary(GgufVocabulary::of_bytes(
        &["<|end|>"],
        template,
    )))
    .unwrap()
}

#[test]
fn recorded_answers_are_told_apart_as_tokens_and_as_bytes() {
    let file: Value = serde_json::from_str(include_str!("../fixtures/muse/parse-cases.json")).unwrap();
    for tokenizer in [muse(), &bytes_only()] {
        for case in file["cases"].as_array().unwrap() {
            let ids = tokenizer.encode(case["text"].as_str().unwrap(), Specials::Parse);
            let (events, _) = read(tokenizer, &format(tokenizer, &case["tools"]), &ids);
            let expected = json!({
                "reasoning": case["reasoning"], "content": case["content"], "tool_calls": case["tool_calls"],
            });
            assert_eq!(parsed(&events), expected, "{}", case["name"]);
        }
    }
}

#[test]
fn a_trained_model_is_understood_and_its_thoughts_are_counted() {
    let tokenizer = nano();
    let (marks, reasoning) = (
        ["<|message|>", "<|eom|>"].map(|mark| tokenizer.special_id(mark)),
        " to=self<|message|>",
    );
    for case in nano_cases()["cases"].as_array().unwrap() {
        let ids: Vec<u32> = serde_json::from_value(case["output_ids"].clone()).unwrap();
        let (events, counted) = read(tokenizer, &format(tokenizer, &case["tools"]), &ids);
        assert_eq!(parsed(&events), case["parsed"], "{}", case["name"]);
        // All answers of this model that think do so once and first.
        let position = |mark: Option<u32>| ids.iter().position(|id| Some(*id) == mark).unwrap();
        let expected = match case["output_text"].as_str().unwrap().starts_with(reasoning) {
            true => position(marks[1]) - position(marks[0]) - 1,
            false => 0,
        };
        assert_eq!(counted as usize, expected, "{}", case["name"]);
    }
}

#[test]
fn marks_typed_letter_by_letter_are_text_where_they_are_tokens() {
    let tokenizer = muse();
    let typed = "to=user<|message|>x<|eot|>";
    let mut ids = tokenizer.encode(" to=user<|message|>", Specials::Parse);
    ids.extend(tokenizer.encode(typed, Specials::AsText));
    ids.extend(tokenizer.encode("<|patch|><|eot|>", Specials::Parse));
    let (events, _) = read(tokenizer, &format(tokenizer, &json!(null)), &ids);
    assert_eq!(events.iter().map(content).collect::<String>(), typed);
}

fn content(event: &AnswerEvent) -> &str {
    match event {
        AnswerEvent::Content(text) => text,
        other => panic!("{other:?} is not content"),
    }
}

#[test]
fn broken_characters_before_a_mark_are_counted_and_shown_as_such() {
    let tokenizer = muse();
    let mut thought = tokenizer.encode("😀 €", Specials::AsText);
    assert!(thought.len() > 4, "characters of several tokens: {thought:?}");
    thought.pop();
    let ids = [
        tokenizer.encode("<|message|>", Specials::Parse),
        thought.clone(),
        tokenizer.encode("<|eom|>", Specials::Parse),
    ];
    let (events, counted) = read(tokenizer, &format(tokenizer, &json!(null)), &ids.concat());
    assert_eq!(events, [AnswerEvent::Reasoning("😀 \u{fffd}".into())]);
    assert_eq!(counted as usize, thought.len());
}

#[test]
fn a_model_of_no_known_family_says_content_and_takes_no_tools() {
    let tokenizer = llama("smollm");
    let ids = tokenizer.encode(" to=self<|message|>x", Specials::AsText);
    let (events, counted) = read(&tokenizer, &format(&tokenizer, &json!([])), &ids);
    assert_eq!(events.iter().map(content).collect::<String>(), " to=self<|message|>x");
    assert_eq!(counted, 0);
    let refused = tokenizer.answer_format(&with_tools(&json!([{"name": "f"}])), &ToolChoice::Auto);
    assert_eq!(refused.unwrap_err().param.as_deref(), Some("tools"));
}

#[test]
fn a_named_function_is_opened_for_the_model() {
    let tokenizer = muse();
    let tools = json!([{"function": {"name": "calendar.list"}}, {"function": {"name": "g"}}]);
    let named = |name: &str| tokenizer.answer_format(&with_tools(&tools), &ToolChoice::Named(name.into()));
    let format = named("calendar.list").unwrap();
    let opening: Vec<u8> = format
        .opening()
        .iter()
        .flat_map(|id| tokenizer.token_bytes(*id))
        .copied()
        .collect();
    assert_eq!(String::from_utf8(opening).unwrap(), " to=calendar.list<|message|>");
    assert_eq!(format.opening().last().copied(), tokenizer.special_id("<|message|>"));
    let ids = tokenizer.encode(
        "<atem:invoke name=\"calendar.list\">\n</atem:invoke><|eot|>",
        Specials::Parse,
    );
    let call = json!({"name": "calendar.list", "arguments": {}});
    assert_eq!(parsed(&read(tokenizer, &format, &ids).0)["tool_calls"], json!([call]));
    // The header is what the template would have written.
    let mut opened = tokenizer.encode_chat(&with_tools(&tools), 0).unwrap();
    opened.extend(format.opening());
    let text: String = tokenizer
        .template()
        .unwrap()
        .render(&with_tools(&tools), 0)
        .unwrap()
        .text()
        .into_owned();
    assert_eq!(
        opened,
        tokenizer.encode(&(text + " to=calendar.list<|message|>"), Specials::Parse)
    );
    for wrong in ["list", "calendar"] {
        assert_eq!(named(wrong).unwrap_err().param.as_deref(), Some("tool_choice"));
    }
}

#[test]
fn what_can_not_be_promised_is_refused_by_field() {
    let tokenizer = muse();
    let format = |names: &[&str], choice| {
        let tools: Vec<Value> = names.iter().map(|name| json!({"function": {"name": name}})).collect();
        tokenizer.answer_format(&with_tools(&tools.into()), &choice)
    };
    let param = |names: &[&str], choice| format(names, choice).unwrap_err().param.unwrap();
    assert!(!format(&["f"], ToolChoice::Required).unwrap().opening().is_empty());
    assert!(format(&["f"], ToolChoice::Auto).unwrap().opening().is_empty());
    assert_eq!(param(&["f", "g"], ToolChoice::Required), "tool_choice");
    assert_eq!(param(&[], ToolChoice::Required), "tool_choice");
    assert_eq!(param(&["f", "user"], ToolChoice::Auto), "tools[1].function.name");
    let continued = ChatPrompt {
        continue_final: true,
        ..with_tools(&json!([{"name": "f"}]))
    };
    let refused = tokenizer.answer_format(&continued, &ToolChoice::Named("f".into()));
    assert_eq!(refused.unwrap_err().param.as_deref(), Some("tool_choice"));
}

#[test]
fn without_a_choice_of_tools_a_call_is_content() {
    let tokenizer = muse();
    let text = "<atem:invoke name=\"f\"></atem:invoke>";
    let ids = tokenizer.encode(&format!(" to=f<|message|>{text}<|eot|>"), Specials::Parse);
    let format = tokenizer
        .answer_format(&with_tools(&json!([{"name": "f"}])), &ToolChoice::None)
        .unwrap();
    let (events, _) = read(tokenizer, &format, &ids);
    assert_eq!(events.iter().map(content).collect::<String>(), text);
}
