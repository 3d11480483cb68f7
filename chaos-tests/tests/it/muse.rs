//! Encoder, prefill and decode apart, on the ranks that `epd-b300` declares: the recorded answers of muse-nano, the same as
//! from one rank, and after every death.

use std::{fs, path::PathBuf};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use cluster_messages::{ActorPath, Role};
use cluster_telemetry::names::{attributes, spans};
use futures::{StreamExt, future::join_all, stream};
use hyper::StatusCode;
use serde_json::{Value, json};

use crate::{
    sandbox::Sandbox,
    traces::{named, trace_of},
};

/// A request with the answer that another implementation gave.
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) body: Value,
    pub(crate) has_picture: bool,
    pub(crate) expected: Answer,
}

/// What of an answer must be equal. Tool calls have ids of their own, so names and arguments count.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Answer {
    reasoning: String,
    content: String,
    calls: Vec<(String, Value)>,
    prompt_tokens: u64,
    completion_tokens: u64,
}

pub(crate) fn model_folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../topologies/models/muse-nano"))
}

pub(crate) fn cases() -> Vec<Case> {
    let text = fs::read_to_string(model_folder().join("expected.json")).expect("the recorded answers are shipped");
    let recorded: Value = serde_json::from_str(&text).expect("they are JSON");
    recorded["cases"].as_array().expect("a list").iter().map(case).collect()
}

fn case(recorded: &Value) -> Case {
    let mut messages = recorded["messages"].clone();
    let mut has_picture = false;
    for part in parts(&mut messages) {
        if let Some(url) = part["image_url"]["url"].as_str() {
            let bytes = fs::read(model_folder().join(url)).expect("its picture is shipped");
            part["image_url"]["url"] = format!("data:image/png;base64,{}", STANDARD.encode(bytes)).into();
            has_picture = true;
        }
    }
    let mut body = json!({"model": "muse-nano", "messages": messages, "temperature": 0, "max_tokens": 600});
    for field in ["tools", "reasoning_effort"] {
        if !recorded[field].is_null() {
            body[field] = recorded[field].clone();
        }
    }
    let parsed = &recorded["parsed"];
    Case {
        name: recorded["name"].as_str().expect("a name").into(),
        body,
        has_picture,
        expected: Answer {
            reasoning: text_of(&parsed["reasoning"]),
            content: text_of(&parsed["content"]),
            calls: calls_of(&parsed["tool_calls"]),
            prompt_tokens: recorded["prompt_ids"].as_array().map_or(0, Vec::len) as u64,
            completion_tokens: recorded["output_ids"].as_array().map_or(0, Vec::len) as u64,
        },
    }
}

/// All typed parts of all messages.
fn parts(messages: &mut Value) -> impl Iterator<Item = &mut Value> {
    let messages = messages.as_array_mut().into_iter().flatten();
    messages.flat_map(|message| message["content"].as_array_mut().into_iter().flatten())
}

fn text_of(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn calls_of(calls: &Value) -> Vec<(String, Value)> {
    let calls = calls.as_array().into_iter().flatten();
    calls
        .map(|call| {
            let function = if call["function"].is_null() {
                call
            } else {
                &call["function"]
            };
            let arguments = match &function["arguments"] {
                Value::String(text) => serde_json::from_str(text).expect("arguments are JSON"),
                other => other.clone(),
            };
            (text_of(&function["name"]), arguments)
        })
        .collect()
}

impl Answer {
    fn of(answer: &Value) -> Self {
        let message = &answer["choices"][0]["message"];
        Self {
            reasoning: text_of(&message["reasoning_content"]),
            content: text_of(&message["content"]),
            calls: calls_of(&message["tool_calls"]),
            prompt_tokens: answer["usage"]["prompt_tokens"].as_u64().unwrap_or_default(),
            completion_tokens: answer["usage"]["completion_tokens"].as_u64().unwrap_or_default(),
        }
    }
}

pub(crate) async fn ask(sandbox: &Sandbox, case: &Case) -> Answer {
    let mut body = case.body.clone();
    body["model"] = sandbox.model().into();
    let (status, answer) = sandbox.post("/v1/chat/completions", &body).await;
    assert_eq!(status, StatusCode::OK, "{}: {answer}", case.name);
    Answer::of(&answer)
}

/// Asks everything, at most `concurrency` at a time.
async fn ask_all(sandbox: &Sandbox, cases: &[Case], concurrency: usize) -> Vec<Answer> {
    stream::iter(cases)
        .map(|case| ask(sandbox, case))
        .buffered(concurrency)
        .collect()
        .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_recorded_answer_comes_back_on_declared_ranks_and_on_one() {
    let cases = cases();
    assert_eq!(cases.len(), 64);
    for topology in ["epd-b300", "muse-nano"] {
        let sandbox = Sandbox::shipped(topology).await;
        let answers = ask_all(&sandbox, &cases, 8).await;
        for (case, answer) in cases.iter().zip(answers) {
            assert_eq!(answer, case.expected, "{topology}: {}", case.name);
        }
        sandbox.wait_for_base_line().await;
        sandbox.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_picture_goes_through_every_role_and_the_trace_says_so() {
    let sandbox = Sandbox::shipped("epd-b300").await;
    let case = cases()
        .into_iter()
        .find(|case| case.has_picture)
        .expect("a picture case");
    let mut body = case.body.clone();
    body["model"] = sandbox.model().into();
    let (status, answer) = sandbox.post("/v1/chat/completions", &body).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    let spans = trace_of(&answer, |spans| named(spans, spans::GATEWAY_REQUEST).count() == 1).await;
    let expected = [
        (spans::TOKENIZER_ENCODE, "tokenizer.0"),
        (spans::ROUTER_CHOOSE, "router.0"),
        (spans::ENCODER_ENCODE, "encoder.0"),
        (spans::PREFILL_RUN, "prefill.0"),
        (spans::FEATURES_FETCH, "prefill.0"),
        (spans::KV_TRANSFER, "decode.0"),
        (spans::DECODE_RUN, "decode.0"),
        (spans::TOKENIZER_DECODE, "tokenizer.0"),
    ];
    for (name, instance) in expected {
        let span = named(&spans, name)
            .next()
            .unwrap_or_else(|| panic!("no {name} in {spans:#?}"));
        assert_eq!(span.attribute(attributes::INSTANCE), Some(instance), "{name}");
        assert_eq!(span.attribute(attributes::ERROR_TYPE), None, "{name}");
    }
    sandbox.stop().await;
}

/// Kills `path` when every answer was promised and none is there, and demands every recorded answer all the same.
async fn survives(path: ActorPath) {
    let sandbox = Sandbox::shipped("epd-b300").await;
    let cases: Vec<Case> = cases().into_iter().filter(|case| case.has_picture).collect();
    let promised = join_all(cases.iter().map(|case| {
        let mut body = case.body.clone();
        body["model"] = sandbox.model().into();
        let sandbox = &sandbox;
        async move { sandbox.stream("/v1/chat/completions", &body).await }
    }));
    let streams = promised.await;
    sandbox.running.kill(path);
    for (case, stream) in cases.iter().zip(streams) {
        let ended = stream.rest().await;
        assert_eq!(ended.error, None, "{path}: {}", case.name);
        assert_eq!(ended.text, case.expected.content, "{path}: {}", case.name);
    }
    sandbox.wait_for_restart(path, 1).await;
    sandbox.wait_for_base_line().await;
    sandbox.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pictures_survive_the_death_of_every_role_that_computes() {
    for role in [Role::Encoder, Role::Prefill, Role::Decode] {
        survives(ActorPath::new(role, 0)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_pictures_at_once_are_all_answered() {
    let sandbox = Sandbox::shipped("epd-b300").await;
    let cases: Vec<Case> = cases().into_iter().filter(|case| case.has_picture).collect();
    let asked = join_all((0..200).map(|i| ask(&sandbox, &cases[i % cases.len()])));
    for (i, answer) in asked.await.into_iter().enumerate() {
        assert_eq!(answer, cases[i % cases.len()].expected);
    }
    sandbox.wait_for_base_line().await;
    sandbox.stop().await;
}

/// Asks every picture case several times over while `encoder.0` dies again and again, and demands every recorded answer.
async fn answers_while_an_encoder_dies(text: &str) {
    let sandbox = Sandbox::emulated("dying-encoder", text).await;
    let cases: Vec<Case> = cases().into_iter().filter(|case| case.has_picture).collect();
    let encoder = ActorPath::new(Role::Encoder, 0);
    for round in 1..=3 {
        let asked = join_all((0..4).flat_map(|_| cases.iter().map(|case| ask(&sandbox, case))));
        let (answers, ()) = tokio::join!(asked, async { sandbox.running.kill(encoder) });
        for (case, answer) in cases.iter().cycle().zip(answers) {
            assert_eq!(answer, case.expected, "round {round}: {}", case.name);
        }
        sandbox.wait_for_restart(encoder, round).await;
    }
    sandbox.wait_for_base_line().await;
    sandbox.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_encoder_takes_over_from_a_dying_one() {
    let two = "extends: epd-b300\nname: two-encoders\nroles: { encoder: { replicas: 2, devices: [0, 1, 2, 3] } }\n";
    answers_while_an_encoder_dies(two).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prefill_encodes_for_a_dying_encoder_where_the_topology_allows_it() {
    let local = "extends: epd-b300\nname: local-fallback\nroles: { encoder: { fallback: local } }\n";
    answers_while_an_encoder_dies(local).await;
}
