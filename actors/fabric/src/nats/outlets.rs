//! The subscriptions of one connection.
//!
//! The client drops a message when its own queue for a subscription is full, and says so once, without the number. So a
//! pump empties that queue without ever waiting for the reader, and the reader's own queue is where messages are dropped
//! and counted one by one. The client's queue overflows only when the pump gets no processor time.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use async_nats::Subscriber;
use futures::StreamExt;
use tokio::task::unconstrained;
use tokio_util::sync::CancellationToken;

use super::headers;
use crate::messaging::{Delivery, Outlet, Subscription};

/// All subscriptions. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Outlets(Arc<Shared>);

#[derive(Default)]
struct Shared {
    open: Mutex<HashMap<u64, Outlet>>,
    numbers: AtomicU64,
    overflows: AtomicU64,
}

impl Outlets {
    /// Hands on what `subscriber` receives, until the result is dropped.
    pub(super) fn pump(&self, subscriber: Subscriber, capacity: usize) -> Subscription {
        let ended = CancellationToken::new();
        let (outlet, subscription) = Subscription::new(capacity, Box::new(ended.clone().drop_guard()));
        let number = self.0.numbers.fetch_add(1, Ordering::Relaxed);
        self.0.open().insert(number, outlet.clone());
        let listed = Listed {
            shared: self.0.clone(),
            number,
        };
        let pump = async move { ended.run_until_cancelled(hand_on(subscriber, outlet, listed)).await };
        // Unconstrained: the reader of the socket is not held back either, and must not get ahead.
        tokio::spawn(unconstrained(pump));
        subscription
    }

    /// Counts a message that the client dropped. Whose it was is not known.
    pub(super) fn overflow(&self) {
        self.0.overflows.fetch_add(1, Ordering::Relaxed);
        self.0.open().values().for_each(Outlet::missed);
    }

    /// How many were counted.
    pub(super) fn overflows(&self) -> u64 {
        self.0.overflows.load(Ordering::Relaxed)
    }
}

impl Shared {
    fn open(&self) -> MutexGuard<'_, HashMap<u64, Outlet>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn hand_on(mut subscriber: Subscriber, outlet: Outlet, _listed: Listed) {
    while let Some(message) = subscriber.next().await {
        outlet.deliver(Delivery {
            subject: message.subject.into_string(),
            reply: message.reply.map(async_nats::Subject::into_string),
            message: headers::from_wire(message.headers, message.payload),
        });
    }
}

/// A subscription in the list, until dropped.
struct Listed {
    shared: Arc<Shared>,
    number: u64,
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.shared.open().remove(&self.number);
    }
}
