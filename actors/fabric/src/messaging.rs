//! Subjects, as NATS has them: publish, subscribe with wildcards, queue groups, request and reply. Messages are small,
//! may be lost, and carry nothing that cannot be rebuilt; `Ok` from a publish means "handed over", nothing more.

pub mod subject;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::mpsc;

use self::subject::SUBJECT_MAX;

/// The most bytes of a payload. Larger things travel by request stream or transfer: the broker's tails grow with size.
pub const PAYLOAD_MAX: usize = 64 * 1024;

/// The most bytes of all names and values of a message's headers.
pub const HEADERS_MAX: usize = 8 * 1024;

/// What is sent.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Message {
    /// Names in lower case, with their values, sorted by name: another order does not survive every bus.
    pub headers: Vec<(String, String)>,
    /// The content.
    pub payload: Bytes,
}

impl Message {
    /// A message without headers.
    pub fn new(payload: impl Into<Bytes>) -> Self {
        Self {
            headers: Vec::new(),
            payload: payload.into(),
        }
    }

    /// The same with one more header, behind those of the same name.
    #[must_use]
    pub fn with_header(mut self, name: &str, value: impl Into<String>) -> Self {
        let place = self.headers.partition_point(|(other, _)| other.as_str() <= name);
        self.headers.insert(place, (name.into(), value.into()));
        self
    }

    /// The value of the first header called `name`.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// What a subscriber gets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Delivery {
    /// Where it was published.
    pub subject: String,
    /// Where an answer is awaited.
    pub reply: Option<String>,
    /// What was published.
    pub message: Message,
}

/// Why a message did not go its way.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MessagingError {
    /// Too many bytes; nothing was sent.
    #[error("a payload of {len} bytes is over the limit of {PAYLOAD_MAX}")]
    TooLarge {
        /// How many.
        len: usize,
    },
    /// Not a subject, or not a pattern.
    #[error(
        "'{0}' is not a subject: parts are separated by '.', none is empty, '*' and a last '>' only in patterns, all \
         together at most {SUBJECT_MAX} bytes"
    )]
    BadSubject(String),
    /// Not a header; nothing was sent.
    #[error(
        "'{0}' is not a header: names are lower-case letters, digits, '-', '_' and '.', values one line without blanks at \
         its ends, all together at most {HEADERS_MAX} bytes"
    )]
    BadHeader(String),
    /// Nobody listens there.
    #[error("nobody answers on {0}")]
    NoResponders(String),
    /// No answer in time. The other side may have acted all the same.
    #[error("no answer on {subject} within {timeout_ms} ms")]
    Timeout {
        /// Where.
        subject: String,
        /// How long was waited.
        timeout_ms: u64,
    },
    /// The broker cannot be reached; nothing was sent.
    #[error("messaging is unavailable: {0}")]
    Unavailable(String),
    /// The connection broke while an answer was awaited. The other side may have acted all the same.
    #[error("the connection broke before an answer came on {0}")]
    Lost(String),
}

/// A message bus.
#[async_trait]
pub trait Messaging: Send + Sync + 'static {
    /// Sends to whoever listens on `subject` now.
    async fn publish(&self, subject: &str, message: Message) -> Result<(), MessagingError>;

    /// Sends `message` and waits for one answer; at once an error when nobody listens.
    async fn request(&self, subject: &str, message: Message, timeout: Duration) -> Result<Message, MessagingError>;

    /// Listens on all subjects that match `pattern`, from the moment this returns. At most `capacity` messages wait; then
    /// the newest are dropped and counted. Messages of one publisher arrive in order.
    async fn subscribe(&self, pattern: &str, capacity: usize) -> Result<Subscription, MessagingError>;

    /// The same as one of a group: each message goes to one member.
    async fn subscribe_group(
        &self,
        pattern: &str,
        group: &str,
        capacity: usize,
    ) -> Result<Subscription, MessagingError>;
}

/// Refuses what no bus takes. Every implementation calls it first.
pub fn check_publish(subject: &str, message: &Message) -> Result<(), MessagingError> {
    if !subject::is_subject(subject) {
        return Err(MessagingError::BadSubject(subject.into()));
    }
    let len = message.payload.len();
    if len > PAYLOAD_MAX {
        return Err(MessagingError::TooLarge { len });
    }
    let mut left = HEADERS_MAX;
    for (name, value) in &message.headers {
        let bad = || MessagingError::BadHeader(name.clone());
        if !is_header_name(name) || !is_header_value(value) {
            return Err(bad());
        }
        left = left.checked_sub(name.len() + value.len()).ok_or_else(bad)?;
    }
    Ok(())
}

/// Refuses what no bus can listen on. Every implementation calls it first.
pub fn check_subscribe(pattern: &str, group: Option<&str>) -> Result<(), MessagingError> {
    if !subject::is_pattern(pattern) {
        return Err(MessagingError::BadSubject(pattern.into()));
    }
    match group {
        Some(group) if !subject::is_subject(group) => Err(MessagingError::BadSubject(group.into())),
        _ => Ok(()),
    }
}

fn is_header_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.".contains(&byte);
    !name.is_empty() && name.bytes().all(plain)
}

fn is_header_value(value: &str) -> bool {
    value.trim() == value && !value.contains(char::is_control)
}

/// The messages of one pattern. Dropping it ends the subscription.
pub struct Subscription {
    deliveries: mpsc::Receiver<Delivery>,
    lost: Arc<AtomicU64>,
    _registration: Box<dyn Send + Sync>,
}

/// The bus's end of a subscription.
#[derive(Clone)]
pub struct Outlet {
    deliveries: mpsc::Sender<Delivery>,
    lost: Arc<AtomicU64>,
}

impl Subscription {
    /// A subscription for `capacity` waiting messages, and where the bus puts them in. `registration` is dropped with it.
    pub fn new(capacity: usize, registration: Box<dyn Send + Sync>) -> (Outlet, Self) {
        let (sender, deliveries) = mpsc::channel(capacity.max(1));
        let lost = Arc::new(AtomicU64::new(0));
        let outlet = Outlet {
            deliveries: sender,
            lost: lost.clone(),
        };
        let subscription = Self {
            deliveries,
            lost,
            _registration: registration,
        };
        (outlet, subscription)
    }

    /// The next message. `None` when the bus is gone for good.
    pub async fn next(&mut self) -> Option<Delivery> {
        self.deliveries.recv().await
    }

    /// The next message if one waits.
    pub fn try_next(&mut self) -> Option<Delivery> {
        self.deliveries.try_recv().ok()
    }

    /// How many messages were dropped so far because this reader was behind. When it grows, ask the source.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

impl Outlet {
    /// Counts a message that may have been for this reader and was dropped before it came here.
    pub fn missed(&self) {
        self.lost.fetch_add(1, Ordering::Relaxed);
    }

    /// Puts a message in, or drops and counts it. False when it was dropped.
    pub fn deliver(&self, delivery: Delivery) -> bool {
        let taken = self.deliveries.try_send(delivery).is_ok();
        if !taken {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        taken
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Subscription({} waiting, {} lost)",
            self.deliveries.len(),
            self.lost()
        )
    }
}
