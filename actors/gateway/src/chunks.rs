//! The events of a streamed answer, written by hand into one reused buffer.
//!
//! Everything but the text is the same in each chunk, so it is built once per stream; per token only the text is escaped
//! (figures: `benches/gateway.rs`).

use bytes::{BufMut, Bytes, BytesMut};
use cluster_messages::{Channel, FinishReason, RequestId, TextLogprob, ToolHead, Usage};
use serde::Serialize;

use crate::{error::ApiError, logprobs, routes::Api, usage::UsageJson};

/// What is the same in every object of one answer.
pub(crate) struct Identity<'a> {
    pub(crate) api: Api,
    pub(crate) request: RequestId,
    pub(crate) created: u64,
    pub(crate) model: &'a str,
    pub(crate) fingerprint: Option<&'a str>,
}

impl Identity<'_> {
    /// The id of the answer, in the API's form.
    pub(crate) fn id(&self) -> String {
        match self.api {
            Api::Chat => format!("chatcmpl-{}", self.request),
            Api::Completions => format!("cmpl-{}", self.request),
        }
    }
}

pub(crate) struct Chunks {
    api: Api,
    /// `data: {"id":…,"choices":[`
    head: Vec<u8>,
    /// From the end of the list of choices to the end of the event.
    tail: &'static str,
    /// Characters so far, per choice: what `text_offset` counts.
    offsets: Vec<usize>,
    buffer: BytesMut,
}

impl Chunks {
    pub(crate) fn new(identity: &Identity<'_>, choices: u32, include_usage: bool) -> Self {
        Self {
            api: identity.api,
            head: head(identity),
            tail: if include_usage {
                "],\"usage\":null}\n\n"
            } else {
                "]}\n\n"
            },
            offsets: vec![0; choices as usize],
            buffer: BytesMut::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.buffer.len()
    }

    pub(crate) fn take(&mut self) -> Bytes {
        self.buffer.split().freeze()
    }

    /// Says who speaks, once per choice. Completions have no roles.
    pub(crate) fn begin(&mut self) {
        if self.api == Api::Completions {
            return;
        }
        for choice in 0..self.offsets.len() {
            self.open(choice as u32);
            self.put(",\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null}");
            self.put(self.tail);
        }
    }

    /// More text of one choice. Nothing is written when there is nothing to say.
    pub(crate) fn delta(&mut self, choice: u32, channel: Channel, text: &str, tokens: &[TextLogprob]) {
        if text.is_empty() && tokens.is_empty() {
            return;
        }
        let (open, close) = match (self.api, channel) {
            (Api::Chat, Channel::Content) => (",\"delta\":{\"content\":", "}"),
            (Api::Chat, Channel::Reasoning) => (",\"delta\":{\"reasoning_content\":", "}"),
            (Api::Completions, _) => (",\"text\":", ""),
        };
        self.open(choice);
        self.put(open);
        self.put_json(text);
        self.put(close);
        self.logprobs(choice, tokens);
    }

    /// More of a call of one choice. The completions API has no calls.
    pub(crate) fn tool_call(&mut self, choice: u32, call: &ToolCallDelta<'_>, tokens: &[TextLogprob]) {
        if self.api == Api::Completions {
            return;
        }
        self.open(choice);
        self.put(",\"delta\":{\"tool_calls\":[");
        self.put_json(call);
        self.put("]}");
        self.logprobs(choice, tokens);
    }

    /// From the log-probabilities to the end of the event.
    fn logprobs(&mut self, choice: u32, tokens: &[TextLogprob]) {
        self.put(",\"logprobs\":");
        if tokens.is_empty() {
            self.put("null");
        } else {
            let shaped = logprobs::shape(self.api, tokens, &mut self.offsets[choice as usize]);
            self.put_json(&shaped);
        }
        self.put(",\"finish_reason\":null}");
        self.put(self.tail);
    }

    pub(crate) fn finish(&mut self, choice: u32, reason: FinishReason) {
        self.open(choice);
        self.put(match self.api {
            Api::Chat => ",\"delta\":{}",
            Api::Completions => ",\"text\":\"\"",
        });
        self.put(",\"logprobs\":null,\"finish_reason\":\"");
        self.put(reason_name(reason));
        self.put("\"}");
        self.put(self.tail);
    }

    /// The totals, in a chunk without choices.
    pub(crate) fn usage(&mut self, usage: &Usage) {
        self.buffer.put_slice(&self.head);
        self.put("],\"usage\":");
        self.put_json(&UsageJson::from(usage));
        self.put("}\n\n");
    }

    /// The last event of an answer that failed.
    pub(crate) fn error(&mut self, error: &ApiError) {
        self.put("data: ");
        self.buffer.put_slice(&error.json());
        self.put("\n\n");
    }

    /// The last event of an answer that is whole.
    pub(crate) fn done(&mut self) {
        self.put("data: [DONE]\n\n");
    }

    /// Tells proxies and clients that the stream lives.
    pub(crate) fn keep_alive(&mut self) {
        self.put(": keep-alive\n\n");
    }

    fn open(&mut self, choice: u32) {
        self.buffer.put_slice(&self.head);
        self.put("{\"index\":");
        self.put_json(&choice);
    }

    fn put(&mut self, text: &str) {
        self.buffer.put_slice(text.as_bytes());
    }

    fn put_json<T: Serialize + ?Sized>(&mut self, value: &T) {
        serde_json::to_writer((&mut self.buffer).writer(), value)
            .expect("a buffer takes all bytes, and our own types have string keys");
    }
}

/// A call in a chunk: its id and name come first, its arguments with them or later.
#[derive(Serialize)]
pub(crate) struct ToolCallDelta<'f> {
    index: u32,
    #[serde(flatten)]
    head: Option<HeadOfCall<'f>>,
    function: FunctionDelta<'f>,
}

#[derive(Serialize)]
struct HeadOfCall<'f> {
    id: &'f str,
    r#type: &'static str,
}

#[derive(Serialize)]
struct FunctionDelta<'f> {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'f str>,
    arguments: &'f str,
}

impl<'f> ToolCallDelta<'f> {
    pub(crate) fn new(index: u32, head: Option<&'f ToolHead>, arguments: &'f str) -> Self {
        Self {
            index,
            head: head.map(|head| HeadOfCall {
                id: &head.id,
                r#type: "function",
            }),
            function: FunctionDelta {
                name: head.map(|head| head.name.as_str()),
                arguments,
            },
        }
    }
}

pub(crate) fn reason_name(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Stop => "stop",
        FinishReason::Length => "length",
        FinishReason::ToolCalls => "tool_calls",
    }
}

#[derive(Serialize)]
struct Head<'a> {
    id: String,
    object: &'static str,
    created: u64,
    model: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    system_fingerprint: Option<&'a str>,
}

fn head(identity: &Identity<'_>) -> Vec<u8> {
    let fields = Head {
        id: identity.id(),
        object: match identity.api {
            Api::Chat => "chat.completion.chunk",
            Api::Completions => "text_completion",
        },
        created: identity.created,
        model: identity.model,
        system_fingerprint: identity.fingerprint,
    };
    let mut head = b"data: ".to_vec();
    serde_json::to_writer(&mut head, &fields).expect("a vector takes all bytes");
    // The object stays open for the choices.
    head.pop();
    head.extend_from_slice(b",\"choices\":[");
    head
}

#[cfg(test)]
mod tests;
