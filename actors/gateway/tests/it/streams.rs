//! Streamed answers, event by event.

use cluster_messages::{ErrorKind, FinishReason, RequestError};

use crate::harness::{Item, Server, admitted, call, calling_answer, delta, finished, short_answer, usage};

fn lost() -> Item {
    Err(RequestError::new(ErrorKind::Lost, "the instance is gone"))
}

#[tokio::test]
async fn a_stream_is_exact() {
    let server = Server::of(short_answer()).await;
    let answer = server.chat(r#","stream":true"#).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("content-type"), Some("text/event-stream; charset=utf-8"));
    assert_eq!(answer.header("cache-control"), Some("no-cache"));
    let head = r#"data: {"id":"chatcmpl-00000000000000000000000000000001","object":"chat.completion.chunk","created":1700000000,"model":"tiny","choices":[{"index":0,"delta":"#;
    let expected = [
        head,
        "{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null}]}\n\n",
        head,
        "{\"content\":\"one \"},\"logprobs\":null,\"finish_reason\":null}]}\n\n",
        head,
        "{\"content\":\"two\"},\"logprobs\":null,\"finish_reason\":null}]}\n\n",
        head,
        "{},\"logprobs\":null,\"finish_reason\":\"stop\"}]}\n\n",
        "data: [DONE]\n\n",
    ];
    assert_eq!(answer.body, expected.concat());
}

#[tokio::test]
async fn only_who_asks_gets_the_usage_chunk() {
    let server = Server::of(short_answer()).await;
    let whole = server.chat("").await.json();
    for options in [
        "",
        r#","stream_options":{}"#,
        r#","stream_options":{"include_usage":false}"#,
    ] {
        let answer = server.chat(&format!(r#","stream":true{options}"#)).await;
        assert!(!answer.body.contains("\"usage\""), "{options}: {}", answer.body);
    }
    let answer = server
        .chat(r#","stream":true,"stream_options":{"include_usage":true}"#)
        .await;
    let chunks = answer.chunks();
    let (last, others) = chunks.split_last().unwrap();
    assert_eq!(last["choices"], serde_json::json!([]));
    assert_eq!(last["usage"], whole["usage"]);
    assert_eq!(others.len(), 4);
    assert!(others.iter().all(|chunk| chunk.as_object().unwrap()["usage"].is_null()));
    assert_eq!(answer.events().last(), Some(&"[DONE]"));
}

#[tokio::test]
async fn streamed_and_whole_answers_are_equal_per_choice() {
    let script = vec![
        admitted(),
        delta(1, "b1", 1),
        delta(0, "a1", 1),
        delta(1, "b2", 2),
        finished(1, FinishReason::Length),
        delta(0, "a2", 2),
        finished(0, FinishReason::Stop),
        usage(),
    ];
    let server = Server::of(script).await;
    let whole = server.chat(r#","n":2"#).await.json();
    let chunks = server.chat(r#","n":2,"stream":true"#).await.chunks();
    for choice in 0..2 {
        let parts = chunks
            .iter()
            .map(|chunk| &chunk["choices"][0])
            .filter(|part| part["index"] == choice);
        let parts: Vec<_> = parts.collect();
        let text: String = parts
            .iter()
            .filter_map(|part| part["delta"]["content"].as_str())
            .collect();
        let expected = &whole["choices"][choice];
        assert_eq!(text, expected["message"]["content"].as_str().unwrap());
        assert_eq!(parts[0]["delta"]["role"], "assistant");
        assert_eq!(parts.last().unwrap()["finish_reason"], expected["finish_reason"]);
    }
}

#[tokio::test]
async fn a_failure_in_mid_stream_is_one_error_event_and_the_end() {
    let server = Server::of(vec![admitted(), delta(0, "one ", 1), lost()]).await;
    let answer = server.chat(r#","stream":true"#).await;
    assert_eq!(answer.status, 200);
    let events = answer.events();
    assert_eq!(events.len(), 3);
    assert_eq!(
        events[2],
        r#"{"error":{"message":"the instance is gone","type":"server_error","param":null,"code":"instance_lost"}}"#
    );
    assert!(
        answer
            .chunks()
            .iter()
            .all(|chunk| chunk["choices"][0]["finish_reason"].is_null())
    );
    let whole = server.chat("").await;
    assert_eq!(
        (whole.status, whole.error("code").as_deref()),
        (503, Some("instance_lost"))
    );
    let page = server.metrics.encode();
    assert!(
        page.contains("cluster_requests_total{model=\"tiny\",outcome=\"instance_lost\"} 2"),
        "{page}"
    );
}

#[tokio::test]
async fn a_failure_before_the_first_text_is_a_status_even_when_streaming() {
    let server = Server::of(vec![admitted(), lost()]).await;
    let answer = server.chat(r#","stream":true"#).await;
    assert_eq!(
        (answer.status, answer.error("code").as_deref()),
        (503, Some("instance_lost"))
    );
}

#[tokio::test]
async fn streams_that_break_the_protocol_end_as_failures() {
    let scripts: [(Vec<Item>, &str); 5] = [
        (vec![delta(0, "a", 1)], "instance_lost"),
        (vec![delta(0, "a", 1), finished(0, FinishReason::Stop)], "instance_lost"),
        (vec![delta(0, "a", 1), usage()], "internal_error"),
        (vec![delta(0, "a", 1), delta(1, "b", 1)], "internal_error"),
        (
            vec![delta(0, "a", 1), finished(0, FinishReason::Stop), delta(0, "b", 2)],
            "internal_error",
        ),
    ];
    for (script, code) in scripts {
        let server = Server::of(script).await;
        let answer = server.chat(r#","stream":true"#).await;
        let last: serde_json::Value = serde_json::from_str(answer.events().last().unwrap()).unwrap();
        assert_eq!(last["error"]["code"], code);
        assert!(!answer.body.contains("[DONE]"));
        assert!(server.chat("").await.status >= 500);
    }
}

#[tokio::test]
async fn thoughts_and_calls_stream_as_deltas_that_join_to_the_whole() {
    let server = Server::of(calling_answer()).await;
    let whole = server.chat(r#","n":2"#).await.json();
    let chunks = server.chat(r#","n":2,"stream":true"#).await.chunks();
    let (mut thought, mut calls, mut reasons) = (String::new(), Vec::<serde_json::Value>::new(), Vec::new());
    for part in chunks
        .iter()
        .map(|chunk| &chunk["choices"][0])
        .filter(|part| part["index"] == 0)
    {
        thought.push_str(part["delta"]["reasoning_content"].as_str().unwrap_or_default());
        reasons.extend(part["finish_reason"].as_str());
        for delta in part["delta"]["tool_calls"].as_array().into_iter().flatten() {
            let index = delta["index"].as_u64().unwrap() as usize;
            if index == calls.len() {
                let mut begun = delta.clone();
                begun.as_object_mut().unwrap().remove("index");
                calls.push(begun);
                continue;
            }
            assert!(delta["id"].is_null(), "{delta}");
            let more = delta["function"]["arguments"].as_str().unwrap();
            let arguments = &mut calls[index]["function"]["arguments"];
            *arguments = format!("{}{more}", arguments.as_str().unwrap()).into();
        }
    }
    let message = &whole["choices"][0]["message"];
    assert_eq!(message["reasoning_content"], thought);
    assert_eq!(message["tool_calls"], serde_json::Value::from(calls));
    assert_eq!(reasons, ["tool_calls"]);
}

#[tokio::test]
async fn calls_out_of_order_are_a_defect_that_the_client_hears_of() {
    for wrong in [call(0, 1, Some("call_a"), "{}", 1), call(0, 0, None, "{}", 1)] {
        let server = Server::of(vec![admitted(), wrong, finished(0, FinishReason::ToolCalls), usage()]).await;
        let answer = server.chat("").await;
        assert_eq!(
            (answer.status, answer.error("code").as_deref()),
            (500, Some("internal_error"))
        );
    }
}
