//! Answers of the demonstration model, replayed.

use std::{fs, path::PathBuf};

use cluster_messages::{ChatMessage, ChatPrompt, Content, JsonText, TextRequest, ToolChoice};
use cluster_text::{JsonFiles, TokenizerSource};
use serde_json::Value;

use super::{
    super::{TextModel, tests},
    *,
};

const THOUGHT_AND_CALLS: &str = "056-tool-parallel";
const ONE_CALL: &str = "049-tool-call";

fn file(name: &str) -> Vec<u8> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../topologies/models/muse-nano");
    fs::read(folder.join(name)).unwrap()
}

fn model() -> TextModel {
    let files = JsonFiles {
        tokenizer: file("tokenizer.json"),
        tokenizer_config: Some(file("tokenizer_config.json")),
        chat_template: Some(String::from_utf8(file("chat_template.jinja")).unwrap()),
        generation_config: Some(file("generation_config.json")),
    };
    TextModel {
        tokenizer: Tokenizer::new(TokenizerSource::Json(files)).unwrap(),
        context: 4096,
        ..tests::model()
    }
}

fn cases() -> Vec<Value> {
    let file: Value = serde_json::from_slice(&file("expected.json")).unwrap();
    file["cases"].as_array().unwrap().clone()
}

fn case(name: &str) -> Value {
    cases().into_iter().find(|case| case["name"] == name).unwrap()
}

/// A request with the tools of `case`; what was asked does not matter to a replay.
fn request(case: &Value) -> TextRequest {
    let message = ChatMessage {
        role: "user".into(),
        content: Some(Content::Text("x".into())),
        ..ChatMessage::default()
    };
    tests::request(cluster_messages::TextInput::Chat(ChatPrompt {
        messages: vec![message],
        tools: case["tools"].is_array().then(|| JsonText(case["tools"].to_string())),
        ..ChatPrompt::default()
    }))
}

fn output(case: &Value) -> Vec<TokenOut> {
    let ids: Vec<u32> = serde_json::from_value(case["output_ids"].clone()).unwrap();
    ids.into_iter()
        .map(|id| TokenOut {
            id,
            logprobs: Some(Box::new(TokenLogprobs {
                chosen: -0.5,
                top: Vec::new(),
            })),
        })
        .collect()
}

/// What a client makes of an answer.
#[derive(Default, Debug, PartialEq)]
struct Heard {
    reasoning: String,
    content: String,
    /// Id, name, arguments.
    calls: Vec<(String, String, Value)>,
    entries: Vec<u32>,
    reason: Option<FinishReason>,
    reasoning_tokens: u32,
}

impl Heard {
    fn take(&mut self, frame: TextFrame) {
        match frame {
            TextFrame::Delta {
                channel,
                text,
                logprobs,
                ..
            } => {
                match channel {
                    Channel::Content => self.content.push_str(&text),
                    Channel::Reasoning => self.reasoning.push_str(&text),
                }
                self.entries.extend(logprobs.iter().map(|entry| entry.id));
            }
            TextFrame::ToolCall {
                index,
                head,
                arguments,
                logprobs,
                ..
            } => {
                assert_eq!(index as usize, self.calls.len());
                let head = head.unwrap();
                self.calls
                    .push((head.id, head.name, serde_json::from_str(&arguments).unwrap()));
                self.entries.extend(logprobs.iter().map(|entry| entry.id));
            }
            TextFrame::Finished { reason, .. } => self.reason = Some(reason),
            other => panic!("{other:?} is not of a choice"),
        }
    }
}

/// The answer of `tokens`, arriving `step` at a time, which the model ends for `reason`.
fn heard(model: &TextModel, request: TextRequest, tokens: &[TokenOut], step: usize, reason: FinishReason) -> Heard {
    let prepared = model.prepare(request, 0).unwrap();
    let mut choice = Choice::new(0, &model.tokenizer, &prepared);
    let mut heard = Heard::default();
    let mut stopped = false;
    for part in tokens.chunks(step) {
        let progress = choice.push(part.to_vec());
        progress.frames.into_iter().for_each(|frame| heard.take(frame));
        stopped = progress.stopped;
        if stopped {
            break;
        }
    }
    let reason = if stopped { FinishReason::Stop } else { reason };
    choice
        .finish(reason, stopped)
        .into_iter()
        .for_each(|frame| heard.take(frame));
    heard.reasoning_tokens = choice.reasoning_tokens();
    heard
}

#[test]
fn recorded_answers_come_out_right_however_tokens_arrive() {
    let model = model();
    for case in cases() {
        let tokens = output(&case);
        let once = heard(&model, request(&case), &tokens, 1, FinishReason::Stop);
        let parsed = &case["parsed"];
        assert_eq!(
            (&*once.reasoning, &*once.content),
            (
                parsed["reasoning"].as_str().unwrap(),
                parsed["content"].as_str().unwrap()
            )
        );
        let calls = once
            .calls
            .iter()
            .map(|(_, name, arguments)| serde_json::json!({"name": name, "arguments": arguments}));
        assert_eq!(calls.collect::<Value>(), parsed["tool_calls"], "{}", case["name"]);
        let expected = if once.calls.is_empty() {
            FinishReason::Stop
        } else {
            FinishReason::ToolCalls
        };
        assert_eq!(once.reason, Some(expected));
        // All but the token that ends the answer.
        let ids: Vec<u32> = tokens[..tokens.len() - 1].iter().map(|token| token.id).collect();
        assert_eq!(once.entries, ids, "{}", case["name"]);
        for step in [2, 3, 7, tokens.len()] {
            assert_eq!(
                heard(&model, request(&case), &tokens, step, FinishReason::Stop),
                once,
                "{}",
                case["name"]
            );
        }
    }
}

#[test]
fn calls_of_one_answer_have_different_ids() {
    let case = case(THOUGHT_AND_CALLS);
    let calls = heard(&model(), request(&case), &output(&case), 1, FinishReason::Stop).calls;
    assert_eq!(calls.len(), 2);
    assert_ne!(calls[0].0, calls[1].0);
    assert!(calls.iter().all(|(id, _, _)| id.starts_with("call_") && id.len() <= 40));
}

#[test]
fn an_answer_that_may_call_once_ends_with_its_first_call() {
    let (model, case) = (model(), case(THOUGHT_AND_CALLS));
    let once = TextRequest {
        parallel_tool_calls: false,
        ..request(&case)
    };
    for step in [1, 1000] {
        let heard = heard(&model, once.clone(), &output(&case), step, FinishReason::Stop);
        assert_eq!((heard.calls.len(), heard.reason), (1, Some(FinishReason::ToolCalls)));
        assert!(
            heard.entries.len() < output(&case).len() / 2 + 20,
            "nothing behind the call is told"
        );
    }
}

#[test]
fn a_call_that_is_cut_is_none() {
    let (model, case) = (model(), case(ONE_CALL));
    let tokens = output(&case);
    let whole = heard(&model, request(&case), &tokens, 1, FinishReason::Stop);
    let thought = tokens.len()
        - 1
        - tokens
            .iter()
            .rev()
            .position(|token| Some(token.id) == model.tokenizer.special_id("<|message|>"))
            .unwrap();
    let mut before = 0;
    for end in thought..tokens.len() {
        let cut = heard(&model, request(&case), &tokens[..end], 1, FinishReason::Length);
        assert_eq!((&*cut.content, cut.reason), ("", Some(FinishReason::Length)));
        assert_eq!(cut.reasoning, whole.reasoning);
        before += usize::from(cut.calls.is_empty());
        assert!(cut.calls.is_empty() || cut.calls == whole.calls);
    }
    assert!(before > 10, "{before}");
}

#[test]
fn stop_strings_are_looked_for_in_content_alone() {
    let model = model();
    let case = cases().into_iter().find(|case| case["name"] == "000-echo").unwrap();
    let stopping = |stop: &str| TextRequest {
        stop: vec![stop.into()],
        ..request(&case)
    };
    let thought = case["parsed"]["reasoning"].as_str().unwrap();
    assert!(thought.contains("998"));
    let heard = |stop| heard(&model, stopping(stop), &output(&case), 1, FinishReason::Length);
    let found = heard("98");
    assert_eq!(
        (&*found.reasoning, &*found.content, found.reason),
        (thought, "9", Some(FinishReason::Stop))
    );
    let absent = heard("user");
    assert_eq!((&*absent.content, absent.reason), ("998", Some(FinishReason::Length)));
}

#[test]
fn a_function_that_must_be_called_is_opened_in_the_prompt() {
    let (model, case) = (model(), case(ONE_CALL));
    let named = TextRequest {
        tool_choice: ToolChoice::Named("get_time".into()),
        ..request(&case)
    };
    let free = model.prepare(request(&case), 0).unwrap().prompt;
    let prompt = model.prepare(named.clone(), 0).unwrap().prompt;
    let opening = prompt.strip_prefix(&free[..]).unwrap();
    let tokens = output(&case);
    let body = tokens.len()
        - tokens
            .iter()
            .rev()
            .position(|token| opening.last() == Some(&token.id))
            .unwrap();
    let header: Vec<u32> = tokens[body - opening.len()..body]
        .iter()
        .map(|token| token.id)
        .collect();
    assert_eq!(opening, header, "as the model itself would begin the call");
    let forced = heard(&model, named, &tokens[body..], 1, FinishReason::Stop);
    let whole = heard(&model, request(&case), &tokens, 1, FinishReason::Stop);
    assert_eq!((forced.calls, forced.reasoning_tokens), (whole.calls, 0));
}
