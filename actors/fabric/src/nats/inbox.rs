//! Where answers to requests arrive: one subscription for all, one place for each that is awaited.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use async_nats::{Message, Subscriber};
use futures::StreamExt;
use tokio::sync::oneshot;

/// The answers that are awaited, by number. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Waiting(Arc<Mutex<HashMap<u64, oneshot::Sender<Message>>>>);

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, oneshot::Sender<Message>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends all waiting without an answer.
    pub(super) fn give_up(&self) {
        self.lock().clear();
    }

    fn settle(&self, answer: Message) {
        let number = answer.subject.rsplit('.').next().and_then(|number| number.parse().ok());
        let waiting = number.and_then(|number: u64| self.lock().remove(&number));
        // No place: the request was given up, or was answered before.
        if let Some(waiting) = waiting {
            drop(waiting.send(answer));
        }
    }
}

/// All answers of one connection.
pub(super) struct Inbox {
    /// What its subjects begin with, with the last dot.
    prefix: String,
    waiting: Waiting,
    numbers: AtomicU64,
}

impl Inbox {
    /// An inbox whose subjects begin with `prefix`.
    pub(super) fn new(prefix: String, waiting: Waiting) -> Self {
        Self {
            prefix,
            waiting,
            numbers: AtomicU64::new(0),
        }
    }

    /// A place for one answer.
    pub(super) fn open(&self) -> Awaited {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        self.waiting.lock().insert(number, sender);
        Awaited {
            subject: format!("{}{number}", self.prefix),
            answer,
            place: Place {
                waiting: self.waiting.clone(),
                number,
            },
        }
    }
}

/// Puts what arrives where it is awaited.
pub(super) async fn sort(mut arriving: Subscriber, waiting: Waiting) {
    while let Some(answer) = arriving.next().await {
        waiting.settle(answer);
    }
}

/// An answer that is awaited.
pub(super) struct Awaited {
    subject: String,
    answer: oneshot::Receiver<Message>,
    place: Place,
}

impl Awaited {
    /// Where it has to be sent.
    pub(super) fn subject(&self) -> &str {
        &self.subject
    }

    /// The answer; `None` when the connection broke.
    pub(super) async fn answer(self) -> Option<Message> {
        let Self { answer, place, .. } = self;
        let answer = answer.await.ok();
        drop(place);
        answer
    }
}

/// Frees a place when dropped, so that an unanswered request leaves nothing behind.
struct Place {
    waiting: Waiting,
    number: u64,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.waiting.lock().remove(&self.number);
    }
}

#[cfg(test)]
mod tests;
