//! Messaging over NATS core.
//!
//! ```text
//! publish, request ─► check ─► connected? ─► client ──► server
//! Subscription ◄─ bounded, counts what it drops ◄─ pump ◄─ client ◄── server      one pump a subscription, never waits
//! request ◄─ inbox: one subscription for all answers ◄───────────┘
//! ```
//! The connection is made in the background and made again when it breaks, with all its subscriptions; nothing needs to be
//! started in a certain order. While it is down every call fails with [`MessagingError::Unavailable`], instead of being
//! kept for later. Requests do not use the client's own, which never forgets one that stayed unanswered.
//!
//! Messages that others publish while the connection is down, or before a server crashes, are lost without a trace here:
//! streams of events carry sequence numbers, and their readers ask the source about a gap.

mod connection;
mod headers;
mod inbox;
mod outlets;

use std::{fmt, future::Future, sync::Arc, time::Duration};

use async_nats::StatusCode;
use async_trait::async_trait;
use bytes::Bytes;

use self::connection::Connection;
pub use self::connection::{NatsCredentials, NatsOptions};
use crate::messaging::{Message, Messaging, MessagingError, Subscription, check_publish, check_subscribe};

/// The longest that anything but an answer is waited for; a server takes microseconds.
const ROUND_TRIP: Duration = Duration::from_secs(2);

/// How often somebody who waits for the connection looks.
const LOOK: Duration = Duration::from_millis(5);

/// A connection to NATS, as one member of a cluster. Clones share it.
#[derive(Clone)]
pub struct Nats(Arc<Connection>);

impl Nats {
    /// Prepares a connection. It is made in the background, so the server may come later; an error means that the options
    /// cannot be used.
    pub async fn connect(options: NatsOptions) -> Result<Self, MessagingError> {
        Ok(Self(Arc::new(Connection::open(options).await?)))
    }

    /// Waits until the server answers; after `timeout` tells why it does not.
    pub async fn ready(&self, timeout: Duration) -> Result<(), MessagingError> {
        let answering = async {
            while self.0.check().is_err() || self.settle().await.is_err() {
                tokio::time::sleep(LOOK).await;
            }
        };
        let answered = tokio::time::timeout(timeout, answering).await;
        answered.map_err(|_| self.0.unavailable())
    }

    /// How often a connection was made. From the second on, messages may have been missed in between.
    pub fn connections(&self) -> u64 {
        self.0.connections()
    }

    /// How many messages the client dropped before they reached their subscription, at least. Each counts as lost in every
    /// subscription, since the client does not tell whose it was.
    pub fn overflows(&self) -> u64 {
        self.0.outlets.overflows()
    }

    async fn send(&self, subject: &str, reply: Option<&str>, message: Message) -> Result<(), MessagingError> {
        self.0.check()?;
        let headers = headers::to_wire(&message)?;
        let (subject, payload) = (subject.to_owned(), message.payload);
        let client = &self.0.client;
        let sent = match reply {
            Some(reply) => {
                let sending = client.publish_with_reply_and_headers(subject, reply.to_owned(), headers, payload);
                self.bounded(sending).await?
            }
            None if headers.is_empty() => self.bounded(client.publish(subject, payload)).await?,
            None => {
                self.bounded(client.publish_with_headers(subject, headers, payload))
                    .await?
            }
        };
        sent.map_err(|error| MessagingError::Unavailable(error.to_string()))
    }

    async fn ask(&self, subject: &str, message: Message) -> Result<Message, MessagingError> {
        let awaited = self.0.inbox.open();
        self.send(subject, Some(awaited.subject()), message).await?;
        let answer = awaited.answer().await;
        let answer = answer.ok_or_else(|| MessagingError::Lost(subject.into()))?;
        if answer.status == Some(StatusCode::NO_RESPONDERS) {
            return Err(MessagingError::NoResponders(subject.into()));
        }
        Ok(headers::from_wire(answer.headers, answer.payload))
    }

    async fn listen(
        &self,
        pattern: &str,
        group: Option<&str>,
        capacity: usize,
    ) -> Result<Subscription, MessagingError> {
        check_subscribe(pattern, group)?;
        self.0.check()?;
        let (client, pattern) = (&self.0.client, pattern.to_owned());
        let subscribed = match group {
            Some(group) => self.bounded(client.queue_subscribe(pattern, group.to_owned())).await?,
            None => self.bounded(client.subscribe(pattern)).await?,
        };
        let subscriber = subscribed.map_err(|error| MessagingError::Unavailable(error.to_string()))?;
        let subscription = self.0.outlets.pump(subscriber, capacity);
        self.settle().await?;
        Ok(subscription)
    }

    /// Returns when the server has done all that was sent before: it takes the commands of a connection in order, so a
    /// message to ourselves comes back after them.
    async fn settle(&self) -> Result<(), MessagingError> {
        let echo = self.0.inbox.open();
        let coming_back = async {
            let sent = self.0.client.publish(echo.subject().to_owned(), Bytes::new()).await;
            sent.ok()?;
            echo.answer().await
        };
        match self.bounded(coming_back).await? {
            Some(_) => Ok(()),
            None => Err(self.0.unavailable()),
        }
    }

    /// The client's queue of commands can be full while the connection is stuck.
    async fn bounded<T>(&self, work: impl Future<Output = T>) -> Result<T, MessagingError> {
        let done = tokio::time::timeout(ROUND_TRIP, work).await;
        done.map_err(|_| self.0.unavailable())
    }
}

#[async_trait]
impl Messaging for Nats {
    async fn publish(&self, subject: &str, message: Message) -> Result<(), MessagingError> {
        check_publish(subject, &message)?;
        self.send(subject, None, message).await
    }

    async fn request(&self, subject: &str, message: Message, timeout: Duration) -> Result<Message, MessagingError> {
        check_publish(subject, &message)?;
        let answered = tokio::time::timeout(timeout, self.ask(subject, message)).await;
        answered.unwrap_or_else(|_| {
            Err(MessagingError::Timeout {
                subject: subject.into(),
                timeout_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
            })
        })
    }

    async fn subscribe(&self, pattern: &str, capacity: usize) -> Result<Subscription, MessagingError> {
        self.listen(pattern, None, capacity).await
    }

    async fn subscribe_group(
        &self,
        pattern: &str,
        group: &str,
        capacity: usize,
    ) -> Result<Subscription, MessagingError> {
        self.listen(pattern, Some(group), capacity).await
    }
}

impl fmt::Debug for Nats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Nats({})", self.0.servers())
    }
}
