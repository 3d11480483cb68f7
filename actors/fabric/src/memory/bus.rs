//! The message bus inside one process.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use cluster_messages::NodeId;
use tokio::sync::mpsc;

use super::links::Links;
use crate::{
    Clock,
    messaging::{
        Delivery, Message, Messaging, MessagingError, Outlet, Subscription, check_publish, check_subscribe,
        subject::{INBOX, matches},
    },
};

pub(super) struct Bus {
    clock: Arc<dyn Clock>,
    links: Arc<Links>,
    listeners: Mutex<Vec<Listener>>,
    inboxes: Mutex<HashMap<String, Inbox>>,
    numbers: AtomicU64,
}

#[derive(Clone)]
struct Listener {
    number: u64,
    node: NodeId,
    pattern: String,
    group: Option<String>,
    outlet: Outlet,
}

/// Where a request awaits its answer.
#[derive(Clone)]
struct Inbox {
    node: NodeId,
    answers: mpsc::Sender<Message>,
}

impl Bus {
    pub(super) fn new(clock: Arc<dyn Clock>, links: Arc<Links>) -> Self {
        Self {
            clock,
            links,
            listeners: Mutex::default(),
            inboxes: Mutex::default(),
            numbers: AtomicU64::new(0),
        }
    }

    fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    fn listeners(&self) -> MutexGuard<'_, Vec<Listener>> {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn inboxes(&self) -> MutexGuard<'_, HashMap<String, Inbox>> {
        self.inboxes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands `delivery` to everyone it is for; how many that were.
    fn send(self: &Arc<Self>, from: &NodeId, delivery: &Delivery) -> usize {
        if delivery.subject.starts_with(INBOX) {
            self.answer(from, delivery);
            return 1;
        }
        let receivers = self.receivers(from, &delivery.subject);
        for receiver in &receivers {
            let (outlet, delivery) = (receiver.outlet.clone(), delivery.clone());
            self.travel(from, &receiver.node, move || {
                outlet.deliver(delivery.clone());
            });
        }
        receivers.len()
    }

    fn answer(self: &Arc<Self>, from: &NodeId, delivery: &Delivery) {
        let inbox = self.inboxes().get(&delivery.subject).cloned();
        // A request that no longer waits has no inbox any more.
        let Some(inbox) = inbox.filter(|inbox| !self.links.is_cut(from, &inbox.node)) else {
            return;
        };
        let (answers, message) = (inbox.answers, delivery.message.clone());
        self.travel(from, &inbox.node, move || {
            // Only the first answer has room; a repeated one is dropped here.
            drop(answers.try_send(message.clone()));
        });
    }

    /// Whom a message on `subject` reaches: every single listener, and of each group one in turn.
    fn receivers(&self, from: &NodeId, subject: &str) -> Vec<Listener> {
        let reached: Vec<Listener> = {
            let listeners = self.listeners();
            let matching = listeners.iter().filter(|listener| matches(&listener.pattern, subject));
            matching
                .filter(|listener| !self.links.is_cut(from, &listener.node))
                .cloned()
                .collect()
        };
        let groups: HashSet<String> = reached.iter().filter_map(|listener| listener.group.clone()).collect();
        let (mut chosen, members): (Vec<_>, Vec<_>) =
            reached.into_iter().partition(|listener| listener.group.is_none());
        for group in groups {
            let members: Vec<_> = members
                .iter()
                .filter(|member| member.group.as_ref() == Some(&group))
                .collect();
            let turn = usize::try_from(self.next_number()).unwrap_or(0) % members.len();
            chosen.push(members[turn].clone());
        }
        chosen
    }

    /// Runs `arrive` once for each copy that arrives.
    fn travel(&self, from: &NodeId, to: &NodeId, arrive: impl Fn() + Send + Sync + 'static) {
        let arrivals = self.links.arrivals(from, to);
        if arrivals.iter().all(Duration::is_zero) {
            arrivals.iter().for_each(|_| arrive());
            return;
        }
        let arrive = Arc::new(arrive);
        for delay in arrivals {
            let (arrive, wait) = (arrive.clone(), self.clock.sleep(delay));
            tokio::spawn(async move {
                wait.await;
                arrive();
            });
        }
    }
}

/// One node's share of the bus.
pub(super) struct NodeBus {
    pub(super) node: NodeId,
    pub(super) bus: Arc<Bus>,
}

impl NodeBus {
    fn listen(&self, pattern: &str, group: Option<&str>, capacity: usize) -> Result<Subscription, MessagingError> {
        check_subscribe(pattern, group)?;
        let number = self.bus.next_number();
        let registration = Listening {
            bus: self.bus.clone(),
            number,
        };
        let (outlet, subscription) = Subscription::new(capacity, Box::new(registration));
        self.bus.listeners().push(Listener {
            number,
            node: self.node.clone(),
            pattern: pattern.into(),
            group: group.map(Into::into),
            outlet,
        });
        Ok(subscription)
    }

    fn open_inbox(&self) -> (OpenInbox, mpsc::Receiver<Message>) {
        let (answers, receiver) = mpsc::channel(1);
        let inbox = OpenInbox {
            bus: self.bus.clone(),
            subject: format!("{INBOX}{}", self.bus.next_number()),
        };
        let node = self.node.clone();
        self.bus
            .inboxes()
            .insert(inbox.subject.clone(), Inbox { node, answers });
        (inbox, receiver)
    }
}

#[async_trait]
impl Messaging for NodeBus {
    async fn publish(&self, subject: &str, message: Message) -> Result<(), MessagingError> {
        check_publish(subject, &message)?;
        let delivery = Delivery {
            subject: subject.into(),
            reply: None,
            message,
        };
        self.bus.send(&self.node, &delivery);
        Ok(())
    }

    async fn request(&self, subject: &str, message: Message, timeout: Duration) -> Result<Message, MessagingError> {
        check_publish(subject, &message)?;
        let (inbox, mut answers) = self.open_inbox();
        let delivery = Delivery {
            subject: subject.into(),
            reply: Some(inbox.subject.clone()),
            message,
        };
        if self.bus.send(&self.node, &delivery) == 0 {
            return Err(MessagingError::NoResponders(subject.into()));
        }
        let late = || MessagingError::Timeout {
            subject: subject.into(),
            timeout_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
        };
        tokio::select! {
            biased;
            Some(answer) = answers.recv() => Ok(answer),
            () = self.bus.clock.sleep(timeout) => Err(late()),
        }
    }

    async fn subscribe(&self, pattern: &str, capacity: usize) -> Result<Subscription, MessagingError> {
        self.listen(pattern, None, capacity)
    }

    async fn subscribe_group(
        &self,
        pattern: &str,
        group: &str,
        capacity: usize,
    ) -> Result<Subscription, MessagingError> {
        self.listen(pattern, Some(group), capacity)
    }
}

/// Ends a subscription when dropped.
struct Listening {
    bus: Arc<Bus>,
    number: u64,
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.bus.listeners().retain(|listener| listener.number != self.number);
    }
}

/// Closes an inbox when dropped.
struct OpenInbox {
    bus: Arc<Bus>,
    subject: String,
}

impl Drop for OpenInbox {
    fn drop(&mut self) {
        self.bus.inboxes().remove(&self.subject);
    }
}
