//! Calls between nodes: how they are written as messages, and the loop that takes those for this node.

use std::time::Duration;

use bytes::Bytes;
use cluster_messages::{Deadline, Epoch, InstanceRef, TraceContext};
use tokio::{sync::oneshot, task::AbortHandle};

use super::{Directory, other_protocol};
use crate::{
    clock::before,
    messaging::{Delivery, Message, MessagingError, subject},
    protocol::{CallContext, CallError, Protocol, RemoteCall},
    wire,
};

/// The most calls that wait to be looked at; looking takes microseconds.
const WAITING_MAX: usize = 4096;

// Header names. A clock is not compared across nodes, so the time left travels, not the deadline.
const PROTOCOL: &str = "protocol";
const METHOD: &str = "method";
const EPOCH: &str = "epoch";
const LEFT_MS: &str = "left-ms";
const TRACEPARENT: &str = "traceparent";
const STATUS: &str = "status";

/// A call as a message.
pub(super) fn call_message<P: Protocol>(
    epoch: Epoch,
    method: &str,
    body: Bytes,
    left: Duration,
    context: &CallContext,
) -> Message {
    Message::new(body)
        .with_header(PROTOCOL, P::NAME)
        .with_header(METHOD, method)
        .with_header(EPOCH, epoch.0.to_string())
        .with_header(LEFT_MS, left.as_millis().to_string())
        .with_header(TRACEPARENT, context.trace.traceparent.clone())
}

/// An answer as a message.
fn answer_message(answer: Result<Bytes, CallError>) -> Message {
    match answer {
        Ok(body) => Message::new(body).with_header(STATUS, "ok"),
        Err(error) => {
            let body = wire::encode(&error).expect("an error is a plain type, which always encodes");
            Message::new(body).with_header(STATUS, "error")
        }
    }
}

/// The body of an answer.
pub(super) fn read_answer(answer: &Message) -> Result<&[u8], CallError> {
    match answer.header(STATUS) {
        Some("ok") => Ok(&answer.payload),
        Some("error") => Err(wire::decode::<CallError>(&answer.payload)?),
        other => Err(CallError::Codec(format!("an answer with status {other:?}"))),
    }
}

/// The loop that takes calls for a node; ends when dropped.
#[derive(Debug)]
pub struct Listening(AbortHandle);

impl Drop for Listening {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Directory {
    /// Takes calls from other nodes, from the moment this returns and while the result is kept.
    pub async fn listen(&self) -> Result<Listening, MessagingError> {
        let pattern = format!("{}.{}.>", self.0.prefix, subject::part(&self.0.node.0));
        let mut calls = self.0.messaging.subscribe(&pattern, WAITING_MAX).await?;
        let directory = self.clone();
        let task = tokio::spawn(async move {
            let mut lost = 0;
            while let Some(delivery) = calls.next().await {
                directory.take(delivery).await;
                if calls.lost() > lost {
                    lost = calls.lost();
                    tracing::warn!(node = %directory.0.node, lost, "calls came faster than they were taken and were dropped");
                }
            }
        });
        Ok(Listening(task.abort_handle()))
    }

    async fn take(&self, delivery: Delivery) {
        let Some(reply) = delivery.reply.clone() else {
            if let Err(error) = self.deliver(&delivery, None) {
                tracing::debug!(subject = delivery.subject, %error, "cast refused");
            }
            return;
        };
        let credit = self.0.remote_calls.try_take();
        let (sender, answer) = oneshot::channel();
        let delivered = match &credit {
            Ok(_) => self.deliver(&delivery, Some(sender)),
            Err(full) => Err(CallError::Overloaded(full.message.clone())),
        };
        let deadline = match delivered {
            Ok(deadline) => deadline,
            Err(error) => return self.answer(&reply, Err(error)).await,
        };
        let directory = self.clone();
        tokio::spawn(async move {
            let _credit = credit;
            let answered = before(&*directory.0.clock, deadline, answer).await;
            // Past the deadline the caller has given up; nobody needs to be told.
            if let Ok(answer) = answered {
                directory
                    .answer(&reply, answer.unwrap_or(Err(CallError::Dropped)))
                    .await;
            }
        });
    }

    /// Puts the call into its actor's mailbox; until when it may answer.
    fn deliver(
        &self,
        delivery: &Delivery,
        answer: Option<oneshot::Sender<Result<Bytes, CallError>>>,
    ) -> Result<Deadline, CallError> {
        let message = &delivery.message;
        let instance = InstanceRef {
            path: self.path_of(&delivery.subject)?,
            epoch: Epoch(number(message, EPOCH)?),
        };
        let deadline = self
            .0
            .clock
            .deadline_in(Duration::from_millis(number(message, LEFT_MS)?));
        let call = RemoteCall {
            method: text(message, METHOD)?.into(),
            body: message.payload.clone(),
            context: CallContext {
                deadline,
                trace: TraceContext {
                    traceparent: text(message, TRACEPARENT)?.into(),
                },
            },
            answer,
        };
        let asked = text(message, PROTOCOL)?;
        let deliver = self.0.with_resident(instance, |resident| {
            if resident.protocol == asked {
                return Ok(resident.deliver.clone());
            }
            Err(other_protocol(instance, resident.protocol, asked))
        })?;
        deliver(call).map(|()| deadline)
    }

    fn path_of(&self, subject: &str) -> Result<cluster_messages::ActorPath, CallError> {
        let path = subject.rsplitn(3, '.').take(2).collect::<Vec<_>>();
        let [ordinal, role] = path[..] else {
            return Err(CallError::Codec(format!("'{subject}' names no actor")));
        };
        format!("{role}.{ordinal}")
            .parse()
            .map_err(|error| CallError::Codec(format!("{error}")))
    }

    async fn answer(&self, reply: &str, answer: Result<Bytes, CallError>) {
        let sent = self.0.messaging.publish(reply, answer_message(answer)).await;
        let too_large = match sent {
            Err(error @ MessagingError::TooLarge { .. }) => error,
            Err(error) => return tracing::debug!(reply, %error, "an answer was lost"),
            Ok(()) => return,
        };
        // The caller must not wait for an answer that no message can hold.
        let told = answer_message(Err(CallError::Codec(too_large.to_string())));
        if let Err(error) = self.0.messaging.publish(reply, told).await {
            tracing::debug!(reply, %error, "an answer was lost");
        }
    }
}

fn text<'a>(message: &'a Message, name: &str) -> Result<&'a str, CallError> {
    message
        .header(name)
        .ok_or_else(|| CallError::Codec(format!("a call without '{name}'")))
}

fn number(message: &Message, name: &str) -> Result<u64, CallError> {
    let text = text(message, name)?;
    text.parse()
        .map_err(|_| CallError::Codec(format!("'{text}' is not a number for '{name}'")))
}
