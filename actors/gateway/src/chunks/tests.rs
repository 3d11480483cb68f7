use cluster_messages::{ErrorKind, RequestError};

use super::*;

fn chunks(api: Api, include_usage: bool) -> Chunks {
    let identity = Identity {
        api,
        request: RequestId(0xab),
        created: 7,
        model: "org/ti\"ny",
        fingerprint: None,
    };
    Chunks::new(&identity, 2, include_usage)
}

fn written(chunks: &mut Chunks) -> String {
    String::from_utf8(chunks.take().to_vec()).unwrap()
}

#[test]
fn a_chat_stream_is_exact() {
    let mut chunks = chunks(Api::Chat, false);
    chunks.begin();
    chunks.delta(1, Channel::Content, "a\"\n\u{2028}", &[]);
    chunks.delta(1, Channel::Content, "", &[]);
    chunks.finish(1, FinishReason::Length);
    chunks.done();
    let head = r#"data: {"id":"chatcmpl-000000000000000000000000000000ab","object":"chat.completion.chunk","created":7,"model":"org/ti\"ny","choices":[{"index":"#;
    let expected = [
        head,
        "0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null}]}\n\n",
        head,
        "1,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null}]}\n\n",
        head,
        "1,\"delta\":{\"content\":\"a\\\"\\n\u{2028}\"},\"logprobs\":null,\"finish_reason\":null}]}\n\n",
        head,
        "1,\"delta\":{},\"logprobs\":null,\"finish_reason\":\"length\"}]}\n\n",
        "data: [DONE]\n\n",
    ];
    assert_eq!(written(&mut chunks), expected.concat());
    assert_eq!(chunks.len(), 0);
}

#[test]
fn a_completions_stream_with_usage_is_exact() {
    let mut chunks = chunks(Api::Completions, true);
    chunks.begin();
    chunks.delta(0, Channel::Content, "x", &[]);
    chunks.finish(0, FinishReason::Stop);
    chunks.usage(&Usage {
        prompt_tokens: 3,
        completion_tokens: 2,
        cached_tokens: 1,
        reasoning_tokens: 0,
    });
    let head = r#"data: {"id":"cmpl-000000000000000000000000000000ab","object":"text_completion","created":7,"model":"org/ti\"ny","choices":["#;
    let expected = [
        head,
        "{\"index\":0,\"text\":\"x\",\"logprobs\":null,\"finish_reason\":null}],\"usage\":null}\n\n",
        head,
        "{\"index\":0,\"text\":\"\",\"logprobs\":null,\"finish_reason\":\"stop\"}],\"usage\":null}\n\n",
        head,
        "],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":2,\"total_tokens\":5,",
        "\"prompt_tokens_details\":{\"cached_tokens\":1},\"completion_tokens_details\":{\"reasoning_tokens\":0}}}\n\n",
    ];
    assert_eq!(written(&mut chunks), expected.concat());
}

#[test]
fn reasoning_and_calls_have_deltas_of_their_own() {
    let mut chunks = chunks(Api::Chat, false);
    chunks.delta(0, Channel::Reasoning, "hm", &[]);
    let head = ToolHead {
        id: "call_1".into(),
        name: "f".into(),
    };
    chunks.tool_call(0, &ToolCallDelta::new(0, Some(&head), "{\"a\":"), &[]);
    chunks.tool_call(0, &ToolCallDelta::new(0, None, "1}"), &[]);
    chunks.finish(0, FinishReason::ToolCalls);
    let text = written(&mut chunks);
    let deltas: Vec<_> = text
        .split_terminator("\n\n")
        .map(|event| event.split_once("\"choices\":[").unwrap().1)
        .collect();
    let nothing = ",\"logprobs\":null,\"finish_reason\":null}]}";
    assert_eq!(
        deltas,
        [
            format!("{{\"index\":0,\"delta\":{{\"reasoning_content\":\"hm\"}}{nothing}"),
            format!(
                "{{\"index\":0,\"delta\":{{\"tool_calls\":[{{\"index\":0,\"id\":\"call_1\",\"type\":\"function\",\
                 \"function\":{{\"name\":\"f\",\"arguments\":\"{{\\\"a\\\":\"}}}}]}}{nothing}"
            ),
            format!(
                "{{\"index\":0,\"delta\":{{\"tool_calls\":[{{\"index\":0,\"function\":{{\"arguments\":\"1}}\"}}}}]}}{nothing}"
            ),
            "{\"index\":0,\"delta\":{},\"logprobs\":null,\"finish_reason\":\"tool_calls\"}]}".to_owned(),
        ]
    );
}

#[test]
fn an_error_is_an_event_of_its_own() {
    let mut chunks = chunks(Api::Chat, false);
    chunks.error(&RequestError::new(ErrorKind::Lost, "gone\n").into());
    assert_eq!(
        written(&mut chunks),
        "data: {\"error\":{\"message\":\"gone\\n\",\"type\":\"server_error\",\"param\":null,\"code\":\"instance_lost\"}}\n\n"
    );
}

#[test]
fn every_event_parses_and_text_offsets_run_on() {
    let mut chunks = chunks(Api::Completions, false);
    let token = |bytes: &[u8]| TextLogprob {
        id: 1,
        bytes: bytes.to_vec(),
        logprob: Some(-0.5),
        top: vec![],
    };
    chunks.delta(0, Channel::Content, "ab", &[token(b"ab")]);
    chunks.delta(0, Channel::Content, "c", &[token(b"c")]);
    let text = written(&mut chunks);
    let offsets: Vec<_> = text
        .split("\n\n")
        .filter(|event| !event.is_empty())
        .map(|event| {
            let json: serde_json::Value = serde_json::from_str(event.strip_prefix("data: ").unwrap()).unwrap();
            json["choices"][0]["logprobs"]["text_offset"][0].as_u64().unwrap()
        })
        .collect();
    assert_eq!(offsets, [0, 2]);
}
