//! What is asked wrongly, and whole answers.

use cluster_gateway::{Limits, Settings};
use cluster_messages::{Channel, ErrorKind, FinishReason, RequestError, TextFrame, TextLogprob};

use crate::harness::{Fake, Server, admitted, calling_answer, delta, finished, post, short_answer, usage};

const CHAT: &str = "/v1/chat/completions";

#[tokio::test]
async fn a_whole_chat_answer_has_every_member() {
    let server = Server::of(short_answer()).await;
    let answer = server.chat("").await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.header("x-request-id"), Some("00000000000000000000000000000001"));
    assert_eq!(answer.header("x-cluster-ignored-fields"), None);
    let expected = serde_json::json!({
        "id": "chatcmpl-00000000000000000000000000000001", "object": "chat.completion", "created": 1_700_000_000,
        "model": "tiny",
        "choices": [{
            "index": 0, "message": {"role": "assistant", "content": "one two", "refusal": null},
            "logprobs": null, "finish_reason": "stop",
        }],
        "usage": {
            "prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10,
            "prompt_tokens_details": {"cached_tokens": 4}, "completion_tokens_details": {"reasoning_tokens": 1},
        },
    });
    assert_eq!(answer.json(), expected);
}

#[tokio::test]
async fn thoughts_and_calls_have_members_of_their_own() {
    let server = Server::of(calling_answer()).await;
    let answer = server.chat(r#","n":2"#).await.json();
    let call = |id: &str, arguments: &str| serde_json::json!({"id": id, "type": "function", "function": {"name": "f", "arguments": arguments}});
    let expected = serde_json::json!({
        "role": "assistant", "content": null, "reasoning_content": "hm, two",
        "tool_calls": [call("call_a", "{\"x\":1}"), call("call_b", "{}")], "refusal": null,
    });
    assert_eq!(answer["choices"][0]["message"], expected);
    assert_eq!(answer["choices"][0]["finish_reason"], "tool_calls");
    let cut_in_thought = serde_json::json!({
        "role": "assistant", "content": "", "reasoning_content": "h", "refusal": null,
    });
    assert_eq!(answer["choices"][1]["message"], cut_in_thought);
    assert_eq!(answer["choices"][1]["finish_reason"], "length");
}

#[tokio::test]
async fn a_whole_completion_gathers_its_choices_and_logprobs() {
    let token = |logprob| TextLogprob {
        id: 1,
        bytes: b"a".to_vec(),
        logprob,
        top: vec![],
    };
    let scored = TextFrame::Delta {
        channel: Channel::Content,
        choice: 1,
        text: "aa".into(),
        logprobs: vec![token(None), token(Some(-1.0))],
        tokens: 0,
    };
    let script = vec![
        admitted(),
        Ok(scored),
        delta(0, "b", 1),
        finished(1, FinishReason::Length),
        finished(0, FinishReason::Stop),
        usage(),
    ];
    let server = Server::of(script).await;
    let body = r#"{"model":"tiny","prompt":[1,2],"n":2,"echo":true,"logprobs":1,"max_tokens":0,"mood":1}"#;
    let answer = server.post("/v1/completions", body).await;
    assert_eq!(answer.header("x-cluster-ignored-fields"), Some("mood"));
    let json = answer.json();
    assert_eq!(json["id"], "cmpl-00000000000000000000000000000001");
    assert_eq!(json["object"], "text_completion");
    assert_eq!(json["choices"][0]["text"], "b");
    assert_eq!(json["choices"][0]["finish_reason"], "stop");
    assert_eq!(json["choices"][0]["logprobs"]["tokens"], serde_json::json!([]));
    assert_eq!(json["choices"][1]["text"], "aa");
    assert_eq!(json["choices"][1]["finish_reason"], "length");
    assert_eq!(
        json["choices"][1]["logprobs"]["token_logprobs"],
        serde_json::json!([null, -1.0])
    );
    assert_eq!(json["choices"][1]["logprobs"]["text_offset"], serde_json::json!([0, 1]));
}

#[tokio::test]
async fn malformed_bodies_get_a_clean_400() {
    let server = Server::of(short_answer()).await;
    let deep = "[".repeat(200_000);
    let bodies = [
        "",
        "{",
        "[]",
        "\"x\"",
        r#"{"model":"tiny","messages":"hi"}"#,
        r#"{"model":"tiny","messages":[{"role":5,"content":"x"}]}"#,
        r#"{"model":"tiny","messages":[{"role":"user","content":12}]}"#,
        r#"{"messages":[{"role":"user","content":"x"}]}"#,
        r#"{"model":"tiny","model":"tiny","messages":[{"role":"user","content":"x"}]}"#,
        r#"{"model":"tiny","messages":[{"role":"user","content":"\ud83d"}]}"#,
        &deep,
    ];
    for body in bodies {
        let answer = server.post(CHAT, body).await;
        let shown = &body[..body.len().min(80)];
        assert_eq!(answer.status, 400, "{shown}");
        assert_eq!(
            answer.error("type").as_deref(),
            Some("invalid_request_error"),
            "{shown}"
        );
        assert!(answer.header("x-request-id").is_some());
        for leak in ["serde", "panicked", ".rs", "cluster_"] {
            assert!(!answer.body.contains(leak), "{shown}: {}", answer.body);
        }
    }
    assert_eq!(server.chat("").await.status, 200);
    let refused = format!(
        "cluster_requests_refused_total{{reason=\"invalid_request\"}} {}",
        bodies.len()
    );
    assert!(
        server.metrics.encode().contains(&refused),
        "{}",
        server.metrics.encode()
    );
}

#[tokio::test]
async fn wrong_methods_paths_and_media_types_have_their_status() {
    let server = Server::of(short_answer()).await;
    let answer = server.get(CHAT).await;
    assert_eq!((answer.status, answer.header("allow")), (405, Some("POST")));
    assert_eq!(answer.error("code").as_deref(), Some("method_not_allowed"));
    let answer = server.post("/v1/models", "{}").await;
    assert_eq!((answer.status, answer.header("allow")), (405, Some("GET, HEAD")));
    for path in ["/v1/chat", "/", "/v1/models/", "/v1/chat/completions/"] {
        let answer = server.get(path).await;
        assert_eq!(
            (answer.status, answer.error("code").as_deref()),
            (404, Some("route_not_found")),
            "{path}"
        );
    }
    for kind in ["text/plain", "application/jsonl", "application/x-www-form-urlencoded"] {
        let request = post(CHAT, "{}").replace("application/json", kind);
        let answer = server.send(&request).await;
        assert_eq!(
            (answer.status, answer.error("code").as_deref()),
            (415, Some("unsupported_media_type"))
        );
    }
    let packed = post(CHAT, "{}").replace("host: x", "host: x\r\ncontent-encoding: gzip");
    assert_eq!(server.send(&packed).await.status, 415);
    let request = crate::harness::chat("").replace("application/json", "Application/JSON; charset=utf-8");
    assert_eq!(server.send(&request).await.status, 200);
}

#[tokio::test]
async fn large_bodies_are_refused_with_and_without_a_length() {
    let limits = Limits {
        body_bytes_max: 1000,
        ..Limits::default()
    };
    let settings = Settings {
        limits,
        ..Settings::default()
    };
    let server = Server::start(Fake::of(short_answer()), settings).await;
    let answer = server.post(CHAT, &" ".repeat(1001)).await;
    assert_eq!(
        (answer.status, answer.error("code").as_deref()),
        (413, Some("body_too_large"))
    );
    assert!(answer.error("message").unwrap().contains("1000 bytes"));
    let chunk = " ".repeat(0x400);
    let chunked = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n400\r\n{chunk}\r\n0\r\n\r\n"
    );
    assert_eq!(server.send(&chunked).await.status, 413);
}

#[tokio::test]
async fn refusals_of_the_frontend_reach_the_client_with_their_field() {
    let (fake, _drops) = Fake::new(|_| {
        let message = "20001 prompt tokens do not fit the context of 4096";
        let mut error = RequestError::new(ErrorKind::ContextLength, message);
        error.param = Some("messages".into());
        Err(error)
    });
    let server = Server::start(fake, Settings::default()).await;
    for extra in ["", r#","stream":true"#] {
        let answer = server.chat(extra).await;
        assert_eq!(answer.status, 400);
        assert_eq!(answer.header("content-type"), Some("application/json"));
        assert_eq!(answer.error("code").as_deref(), Some("context_length_exceeded"));
        assert_eq!(answer.error("param").as_deref(), Some("messages"));
    }
}

#[tokio::test]
async fn models_are_listed_found_and_missed() {
    let server = Server::of(short_answer()).await;
    let list = server.get("/v1/models").await.json();
    assert_eq!(list["object"], "list");
    let tiny =
        serde_json::json!({"id": "tiny", "object": "model", "created": 5, "owned_by": "tests", "max_model_len": 4096});
    assert_eq!(list["data"][0], tiny);
    assert_eq!(list["data"][1]["emulated_by"], "tiny");
    assert_eq!(server.get("/v1/models/tiny").await.json(), tiny);
    for path in [
        "/v1/models/org/large",
        "/v1/models/org%2Flarge",
        "/v1/models/org%2flarge?x=1",
    ] {
        assert_eq!(server.get(path).await.json()["id"], "org/large", "{path}");
    }
    let unknown = r#"{"model":"huge","messages":[{"role":"user","content":"x"}]}"#;
    for answer in [server.get("/v1/models/huge").await, server.post(CHAT, unknown).await] {
        assert_eq!(
            (answer.status, answer.error("code").as_deref()),
            (404, Some("model_not_found"))
        );
        assert_eq!(answer.error("param").as_deref(), Some("model"));
    }
}

#[tokio::test]
async fn health_readiness_and_metrics_are_different_questions() {
    let server = Server::of(short_answer()).await;
    assert_eq!(server.get("/health").await.status, 200);
    let ready = server.get("/ready").await;
    assert_eq!(
        (ready.status, ready.error("message").as_deref()),
        (503, Some("no decode instance"))
    );
    let head = server
        .send("HEAD /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        .await;
    assert_eq!((head.status, &*head.body), (200, ""));

    server.chat("").await;
    let page = server.get("/metrics").await;
    assert!(
        page.header("content-type")
            .unwrap()
            .starts_with("application/openmetrics-text")
    );
    for line in [
        "cluster_requests_total{model=\"tiny\",outcome=\"ok\"} 1",
        "cluster_prompt_tokens_total{model=\"tiny\"} 7",
        "cluster_completion_tokens_total{model=\"tiny\"} 3",
        "cluster_prompt_tokens_cached_total{model=\"tiny\"} 4",
        "cluster_time_to_first_token_seconds_count{model=\"tiny\"} 1",
        "cluster_inter_token_latency_seconds_count{model=\"tiny\"} 1",
        "cluster_request_duration_seconds_count{model=\"tiny\"} 1",
        "cluster_requests_in_flight 0",
    ] {
        assert!(
            page.body.lines().any(|found| found == line),
            "no {line} in\n{}",
            page.body
        );
    }
}
