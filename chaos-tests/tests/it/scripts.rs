//! Answers that a script dictates: stops across tokens, failures in mid-stream, ends of every kind.

use hyper::StatusCode;
use serde_json::{Value, json};

use crate::sandbox::{Ended, Sandbox, Topology};

async fn scripted(script: &str) -> Sandbox {
    Sandbox::start(Topology {
        script: Some(script),
        ..Topology::default()
    })
    .await
}

fn chat(extra: &Value) -> Value {
    let mut body = json!({"model": "m", "messages": [{"role": "user", "content": "x"}], "max_tokens": 64});
    for (name, value) in extra.as_object().into_iter().flatten() {
        body[name] = value.clone();
    }
    body
}

async fn both_ways(sandbox: &Sandbox, extra: &Value) -> Ended {
    let streamed = sandbox.stream("/v1/chat/completions", &chat(extra)).await.rest().await;
    let (status, whole) = sandbox.post("/v1/chat/completions", &chat(extra)).await;
    assert_eq!(status, StatusCode::OK, "{whole}");
    assert_eq!(
        whole["choices"][0]["message"]["content"].as_str(),
        Some(streamed.text.as_str())
    );
    assert_eq!(
        whole["choices"][0]["finish_reason"].as_str(),
        streamed.finish.first().map(String::as_str)
    );
    streamed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_009_a_stop_string_over_tokens_never_reaches_the_client() {
    for tokens_per_step in [1, 2, 3, 5, 100] {
        let script = format!(
            "scripts:\n  - emit: [{{ text: \"The quick brown fox jumps\" }}]\n    tokens_per_step: {tokens_per_step}\n"
        );
        let sandbox = scripted(&script).await;
        let ended = both_ways(&sandbox, &json!({"stop": ["own fox"]})).await;
        assert_eq!(
            (ended.text.as_str(), ended.finish),
            ("The quick br", vec!["stop".to_owned()])
        );
        sandbox.wait_for_base_line().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_010_held_text_is_released() {
    let sandbox = scripted("scripts:\n  - emit: [{ text: \"please own fo\" }]\n").await;
    let ended = both_ways(&sandbox, &json!({"stop": ["own fox"]})).await;
    assert_eq!(
        (ended.text.as_str(), ended.finish),
        ("please own fo", vec!["stop".to_owned()])
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_012_a_failure_in_mid_stream_is_visible() {
    let sandbox = scripted("scripts:\n  - emit: [{ text: \"one two three\" }]\n    then: error\n").await;
    let ended = sandbox
        .stream("/v1/chat/completions", &chat(&json!({})))
        .await
        .rest()
        .await;
    assert_eq!(ended.text, "one two three");
    assert!(
        ended.error.is_some() && ended.finish.is_empty() && !ended.done,
        "{ended:?}"
    );
    let (status, answer) = sandbox.post("/v1/chat/completions", &chat(&json!({}))).await;
    assert!(
        status.is_server_error() && !answer["error"].is_null(),
        "{status} {answer}"
    );
    sandbox.wait_for_base_line().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn characters_arrive_whole_however_tokens_cut_them() {
    let sandbox = scripted("scripts:\n  - emit: [{ text: \"né 🎈 日本\" }]\n").await;
    let mut stream = sandbox.stream("/v1/chat/completions", &chat(&json!({}))).await;
    let mut text = String::new();
    while let Some(data) = stream.next().await {
        if data == "[DONE]" {
            break;
        }
        let event: Value = serde_json::from_str(&data).expect("JSON");
        let delta = event["choices"][0]["delta"]["content"].as_str().unwrap_or_default();
        assert!(!delta.contains('\u{fffd}'), "{delta}");
        text.push_str(delta);
    }
    assert_eq!(text, "né 🎈 日本");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_limit_ends_an_answer_with_length() {
    let sandbox = scripted("scripts:\n  - emit: [{ text: \"0123456789\" }]\n").await;
    let ended = both_ways(&sandbox, &json!({"max_tokens": 4})).await;
    assert_eq!((ended.text.as_str(), ended.finish), ("0123", vec!["length".to_owned()]));
}
