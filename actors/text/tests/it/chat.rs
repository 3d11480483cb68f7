//! Whole conversations to ids, compared with what the `transformers` library gives for the same files.

use cluster_messages::{ChatPrompt, Content, ErrorKind, JsonText, Part, RequestError};
use cluster_text::{JsonFiles, Template, Tokenizer, TokenizerSource};

use crate::fixtures::{cases, chat_prompt, llama, message, muse, muse_files, prompt, user};

#[test]
fn conversations_give_the_recorded_text_and_ids() {
    let tokenizer = muse();
    let mut compared = 0;
    for case in cases()["cases"].as_array().unwrap() {
        // The recording took typed control tokens for real ones; `injection` has that case.
        let Some(chat) = chat_prompt(case).filter(|_| case["name"] != "specials-in-text") else {
            continue;
        };
        let rendered = tokenizer.template().unwrap().render(&chat, 0).unwrap();
        assert_eq!(rendered.text(), case["text"].as_str().unwrap(), "{}", case["name"]);
        let ids: Vec<u32> = serde_json::from_value(case["ids"].clone()).unwrap();
        assert_eq!(tokenizer.encode_chat(&chat, 0).unwrap(), ids, "{}", case["name"]);
        compared += 1;
    }
    assert_eq!(compared, 12);
}

#[test]
fn what_a_template_refuses_is_the_clients_error() {
    let tokenizer = muse();
    for case in cases()["errors"].as_array().unwrap() {
        let error = tokenizer.encode_chat(&chat_prompt(case).unwrap(), 0).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Invalid, "{}: {error}", case["name"]);
    }
    let chat = ChatPrompt {
        template_args: Some(JsonText(r#"{"reasoning_effort": "some"}"#.to_owned())),
        ..prompt(vec![user("x")])
    };
    let error = tokenizer.encode_chat(&chat, 0).unwrap_err();
    let said =
        "the model's chat template refuses this conversation: reasoning_effort must be one of low, medium, high, xhigh";
    assert_eq!(
        (error.message.as_str(), error.param.as_deref()),
        (said, Some("messages"))
    );
}

#[test]
fn the_level_of_reasoning_reaches_the_template() {
    let tokenizer = muse();
    let ask = |effort: Option<&str>, args: &str| {
        let chat = ChatPrompt {
            reasoning_effort: effort.map(str::to_owned),
            template_args: Some(JsonText(args.to_owned())),
            ..prompt(vec![user("x")])
        };
        let rendered = tokenizer.template().unwrap().render(&chat, 0)?;
        let text = rendered.text().into_owned();
        let (_, behind) = text.split_once("Reasoning strength: ").unwrap();
        Ok::<_, RequestError>(behind.split_once('.').unwrap().0.to_owned())
    };
    for level in ["low", "medium", "high", "xhigh"] {
        assert_eq!(ask(Some(level), "{}").unwrap(), level);
        assert_eq!(
            ask(None, &format!(r#"{{"reasoning_effort": "{level}"}}"#)).unwrap(),
            level
        );
    }
    assert_eq!(ask(None, "{}").unwrap(), "xhigh", "what the template does without it");
    assert_eq!(ask(Some("low"), r#"{"reasoning_effort": null}"#).unwrap(), "low");
    for (effort, args) in [
        ("minimal", "{}"),
        ("none", "{}"),
        ("", "{}"),
        ("low", r#"{"reasoning_effort": "high"}"#),
    ] {
        let error = ask(Some(effort), args).unwrap_err();
        assert_eq!(
            (error.kind, error.param.as_deref()),
            (ErrorKind::Invalid, Some("reasoning_effort"))
        );
    }
}

#[test]
fn a_template_may_call_the_level_otherwise_or_not_know_it() {
    let ask = |template: &str| {
        let chat = ChatPrompt {
            reasoning_effort: Some("high".to_owned()),
            ..prompt(vec![user("x")])
        };
        let template = Template::new(template, &[], &[]).unwrap();
        template.render(&chat, 0).map(|prompt| prompt.text().into_owned())
    };
    let sibling = "{% set level = reasoning_strength if reasoning_strength is defined else 'low' %}{{ level }}";
    assert_eq!(ask(sibling).unwrap(), "high");
    let error = ask("{{ messages[0].content }}").unwrap_err();
    assert_eq!(error.param.as_deref(), Some("reasoning_effort"));
    assert!(error.message.contains("leave reasoning_effort out"), "{error}");
}

#[test]
fn text_parts_equal_one_string() {
    let tokenizer = muse();
    let mut parts = user("");
    parts.content = Some(Content::Parts(vec![
        Part::Text("one ".into()),
        Part::Text("two".into()),
    ]));
    let joined = tokenizer.encode_chat(&prompt(vec![parts]), 0);
    assert_eq!(joined, tokenizer.encode_chat(&prompt(vec![user("one two")]), 0));
}

#[test]
fn the_last_message_is_continued_where_it_ends() {
    let chat = |answer: &str| ChatPrompt {
        continue_final: true,
        ..prompt(vec![user("a"), message("assistant", answer)])
    };
    let tokenizer = llama("smollm");
    let text = |answer: &str| {
        tokenizer
            .template()
            .unwrap()
            .render(&chat(answer), 0)
            .map(|prompt| prompt.text().into_owned())
    };
    assert_eq!(text("It is "), Ok("<s>user\na</s>\n<s>assistant\nIt is ".to_owned()));
    let error = text("").unwrap_err();
    assert_eq!(error.message, "the last message has no content to continue");
}

#[test]
fn wrong_conversations_are_refused_by_field() {
    let tokenizer = muse();
    let param = |chat: &ChatPrompt| tokenizer.encode_chat(chat, 0).unwrap_err().param.unwrap();
    assert_eq!(param(&prompt(vec![])), "messages");
    assert_eq!(param(&prompt(vec![message("<|eot|>", "x")])), "messages[0].role");
    let with = |tools: &str, args: &str| ChatPrompt {
        tools: Some(JsonText(tools.to_owned())),
        template_args: Some(JsonText(args.to_owned())),
        ..prompt(vec![user("x")])
    };
    assert_eq!(param(&with("{}", "{}")), "tools");
    assert_eq!(param(&with("[", "{}")), "tools");
    assert_eq!(param(&with("[]", "[]")), "chat_template_kwargs");
    assert_eq!(param(&with("[]", r#"{"messages": []}"#)), "chat_template_kwargs");
}

#[test]
fn a_model_without_a_template_still_completes() {
    let files = JsonFiles {
        chat_template: None,
        ..muse_files()
    };
    let tokenizer = Tokenizer::new(TokenizerSource::Json(files)).unwrap();
    assert!(!tokenizer.encode_completion("hello").is_empty());
    let error = tokenizer.encode_chat(&prompt(vec![user("x")]), 0).unwrap_err();
    let said = "this model cannot chat: the model has no chat template; use /v1/completions, or give the model a chat template";
    assert_eq!(error.message, said);
}

#[test]
fn ends_and_beginnings_come_from_the_files() {
    let tokenizer = muse();
    assert_eq!(tokenizer.eos_ids(), [1401, 1405]);
    assert_eq!(tokenizer.bos(), Some(1400));
    assert_eq!(tokenizer.vocabulary_len(), 1418);
    assert_eq!(tokenizer.special_id("<|patch|>"), Some(1409));
    assert_eq!(tokenizer.special_id("<|patch|> "), None);
    let tokenizer = llama("smollm");
    assert_eq!((tokenizer.eos_ids(), tokenizer.bos()), ([2].as_slice(), Some(1)));
}
