//! A whole answer: the same frames as a stream's, gathered into one object.

use bytes::Bytes;
use cluster_messages::{Channel, ErrorKind, FinishReason, TextFrame, TextLogprob, ToolHead, Usage};
use serde::Serialize;
use tokio::time::Instant;

use crate::{
    account::Account,
    chunks::{Identity, reason_name},
    error::{ApiError, Fault},
    frames::Frames,
    logprobs::{self, Logprobs},
    routes::Api,
    usage::UsageJson,
};

/// What one choice came to.
#[derive(Default)]
struct Gathered {
    text: String,
    reasoning: String,
    calls: Vec<ToolCall>,
    logprobs: Vec<TextLogprob>,
    reason: Option<FinishReason>,
}

impl Gathered {
    /// Begins a call, or goes on with the last one.
    fn call(&mut self, head: Option<ToolHead>, arguments: &str) {
        if let Some(ToolHead { id, name }) = head {
            self.calls.push(ToolCall {
                id,
                r#type: "function",
                function: Function {
                    name,
                    arguments: String::new(),
                },
            });
        }
        if let Some(call) = self.calls.last_mut() {
            call.function.arguments.push_str(arguments);
        }
    }
}

#[derive(Serialize)]
struct Answer<'a> {
    id: String,
    object: &'static str,
    created: u64,
    model: &'a str,
    choices: Vec<Choice>,
    usage: UsageJson,
    #[serde(skip_serializing_if = "Option::is_none")]
    system_fingerprint: Option<&'a str>,
}

#[derive(Serialize)]
struct Choice {
    index: usize,
    #[serde(flatten)]
    content: ChoiceContent,
    logprobs: Option<Logprobs>,
    finish_reason: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum ChoiceContent {
    Message(Message),
    Text(String),
}

#[derive(Serialize)]
struct Message {
    role: &'static str,
    /// None for a message that only calls tools.
    content: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    reasoning_content: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<ToolCall>,
    refusal: (),
}

#[derive(Serialize)]
struct ToolCall {
    id: String,
    r#type: &'static str,
    function: Function,
}

#[derive(Serialize)]
struct Function {
    name: String,
    /// A JSON object, as text.
    arguments: String,
}

/// Waits for the end and writes the answer. With `wants_logprobs` a choice without tokens has an empty list, not `null`.
pub(crate) async fn gather(
    mut frames: Frames,
    account: &mut Account,
    choices: u32,
    identity: &Identity<'_>,
    wants_logprobs: bool,
) -> Result<Bytes, ApiError> {
    let mut gathered: Vec<Gathered> = Vec::new();
    gathered.resize_with(choices as usize, Gathered::default);
    let mut usage = Usage::default();
    while let Some(frame) = frames.next().await.transpose()? {
        account.frame(&frame, Instant::now());
        match frame {
            TextFrame::Admitted { .. } => {}
            TextFrame::Delta {
                choice,
                channel,
                text,
                logprobs,
                ..
            } => {
                let choice = &mut gathered[choice as usize];
                match (channel, identity.api) {
                    (Channel::Reasoning, Api::Chat) => choice.reasoning.push_str(&text),
                    _ => choice.text.push_str(&text),
                }
                choice.logprobs.extend(logprobs);
            }
            TextFrame::ToolCall {
                choice,
                head,
                arguments,
                logprobs,
                ..
            } => {
                let choice = &mut gathered[choice as usize];
                choice.call(head, &arguments);
                choice.logprobs.extend(logprobs);
            }
            TextFrame::Finished { choice, reason } => gathered[choice as usize].reason = Some(reason),
            TextFrame::Usage(totals) => usage = totals,
        }
    }
    let choices = gathered.into_iter().enumerate();
    let choices = choices.map(|(index, gathered)| choice(identity.api, index, gathered, wants_logprobs));
    let answer = Answer {
        id: identity.id(),
        object: match identity.api {
            Api::Chat => "chat.completion",
            Api::Completions => "text_completion",
        },
        created: identity.created,
        model: identity.model,
        choices: choices.collect(),
        usage: UsageJson::from(&usage),
        system_fingerprint: identity.fingerprint,
    };
    serde_json::to_vec(&answer).map(Bytes::from).map_err(|_| {
        let fault = Fault::Request(ErrorKind::Internal);
        ApiError::new(fault, "the answer could not be written")
    })
}

fn choice(api: Api, index: usize, gathered: Gathered, wants_logprobs: bool) -> Choice {
    let logprobs = wants_logprobs.then(|| logprobs::shape(api, &gathered.logprobs, &mut 0));
    let content = match api {
        Api::Chat => ChoiceContent::Message(Message {
            role: "assistant",
            content: (gathered.calls.is_empty() || !gathered.text.is_empty()).then_some(gathered.text),
            reasoning_content: gathered.reasoning,
            tool_calls: gathered.calls,
            refusal: (),
        }),
        Api::Completions => ChoiceContent::Text(gathered.text),
    };
    let reason = gathered.reason.expect("the frames end only when every choice has");
    Choice {
        index,
        content,
        logprobs,
        finish_reason: reason_name(reason),
    }
}
