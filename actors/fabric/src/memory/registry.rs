//! The registry of instances, in memory.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use cluster_messages::{ActorPath, Epoch, InstanceRef, Registration};
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

use super::follow::{BACKLOG, Followed, follow};
use crate::discovery::{Change, Discovery, DiscoveryError, Lease, LeaseKeeper, Watch};

pub(super) struct Registry {
    state: Mutex<State>,
    /// Sent to while `state` is locked, so that the order of changes is the order of states.
    changes: broadcast::Sender<Change>,
}

#[derive(Default)]
struct State {
    epochs: HashMap<ActorPath, Epochs>,
    live: BTreeMap<InstanceRef, Entry>,
}

#[derive(Clone, Copy, Default)]
struct Epochs {
    issued: Epoch,
    registered: Option<Epoch>,
}

struct Entry {
    registration: Registration,
    lost: CancellationToken,
}

impl Default for Registry {
    fn default() -> Self {
        Self {
            state: Mutex::default(),
            changes: broadcast::Sender::new(BACKLOG),
        }
    }
}

impl Registry {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the followers. Without any the change is in the next snapshot.
    fn tell(&self, change: Change) {
        drop(self.changes.send(change));
    }

    pub(super) fn remove(&self, instance: InstanceRef) {
        self.end(&mut self.lock(), instance);
    }

    fn end(&self, state: &mut State, instance: InstanceRef) {
        if let Some(entry) = state.live.remove(&instance) {
            entry.lost.cancel();
            self.tell(Change::Gone(instance));
        }
    }

    fn insert(&self, registration: Registration) -> Result<CancellationToken, DiscoveryError> {
        let instance = registration.instance;
        let mut state = self.lock();
        let epochs = state.epochs.entry(instance.path).or_default();
        if let Some(known) = epochs.registered.filter(|known| instance.epoch <= *known) {
            return Err(DiscoveryError::Stale { instance, known });
        }
        let before = epochs.registered.replace(instance.epoch);
        epochs.issued = epochs.issued.max(instance.epoch);
        if let Some(epoch) = before {
            self.end(&mut state, InstanceRef { epoch, ..instance });
        }
        let lost = CancellationToken::new();
        let entry = Entry {
            registration: registration.clone(),
            lost: lost.clone(),
        };
        state.live.insert(instance, entry);
        self.tell(Change::Put(registration));
        Ok(lost)
    }

    fn replace(&self, registration: Registration) -> Result<(), DiscoveryError> {
        let mut state = self.lock();
        let Some(entry) = state.live.get_mut(&registration.instance) else {
            return Err(DiscoveryError::LeaseLost(registration.instance));
        };
        entry.registration = registration.clone();
        self.tell(Change::Put(registration));
        Ok(())
    }
}

impl Followed for Registry {
    type Change = Change;

    fn begin(&self) -> (Change, broadcast::Receiver<Change>) {
        let state = self.lock();
        let live = state.live.values().map(|entry| entry.registration.clone());
        (Change::Resync(live.collect()), self.changes.subscribe())
    }
}

/// What the traits need: a handle that can keep the registry alive.
#[async_trait]
impl Discovery for Arc<Registry> {
    async fn next_epoch(&self, path: ActorPath) -> Result<Epoch, DiscoveryError> {
        let mut state = self.lock();
        let epochs = state.epochs.entry(path).or_default();
        epochs.issued = Epoch(epochs.issued.0 + 1);
        Ok(epochs.issued)
    }

    async fn register(&self, registration: Registration, _ttl: Duration) -> Result<Lease, DiscoveryError> {
        let instance = registration.instance;
        let keeper = MemoryLease {
            registry: self.clone(),
            instance,
            lost: self.insert(registration)?,
        };
        Ok(Lease::new(instance, Arc::new(keeper)))
    }

    async fn watch(&self) -> Result<Watch, DiscoveryError> {
        Ok(Watch::new(follow(self.clone())))
    }
}

struct MemoryLease {
    registry: Arc<Registry>,
    instance: InstanceRef,
    lost: CancellationToken,
}

#[async_trait]
impl LeaseKeeper for MemoryLease {
    async fn update(&self, registration: Registration) -> Result<(), DiscoveryError> {
        self.registry.replace(registration)
    }

    async fn revoke(&self) {
        self.abandon();
    }

    async fn lost(&self) {
        self.lost.cancelled().await;
    }

    fn abandon(&self) {
        self.registry.remove(self.instance);
    }
}
