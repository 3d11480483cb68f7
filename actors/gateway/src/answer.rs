//! A whole answer: the same frames as a stream's, gathered into one object.

use bytes::Bytes;
use cluster_messages::{ErrorKind, FinishReason, TextFrame, TextLogprob, Usage};
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
    logprobs: Vec<TextLogprob>,
    reason: Option<FinishReason>,
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
    content: String,
    refusal: (),
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
                choice, text, logprobs, ..
            } => {
                let choice = &mut gathered[choice as usize];
                choice.text.push_str(&text);
                choice.logprobs.extend(logprobs);
            }
            // The gateway asks for no tools yet.
            TextFrame::ToolCall { .. } => {}
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
            content: gathered.text,
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
