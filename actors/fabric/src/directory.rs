//! The actors of one node, and addresses of actors anywhere.
//!
//! ```text
//! Addr<P>::call ── same node ──────────────► mailbox of the actor ── ReplyTo ──► caller
//!       └── other node ─ message on cluster.{ns}.call.{node}.{role}.{n} ─► that node's Directory ─► mailbox
//! ```
//! One subscription serves a whole node. A call names the epoch it is meant for: one for an earlier life of the actor is
//! answered `Stale` at once, one for an unknown actor or a dead node `Unreachable`, on both ways alike.

mod addr;
mod remote;

use std::{
    any::Any,
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use cluster_messages::{ActorPath, Epoch, InstanceRef, NodeId};
use ractor::ActorRef;

pub use addr::Addr;
pub use remote::Listening;

use crate::{
    Clock, Credits, Messaging,
    messaging::subject,
    protocol::{CallError, Protocol, RemoteCall},
};

/// The most calls from other nodes that wait for their answers.
const REMOTE_CALLS_MAX: u32 = 1024;
/// When a node with too many calls may have fewer.
const RETRY_AFTER_MS: u32 = 250;

/// A node's actors by path. Cheap to clone.
#[derive(Clone)]
pub struct Directory(Arc<Inner>);

struct Inner {
    node: NodeId,
    /// The subject all calls begin with.
    prefix: String,
    messaging: Arc<dyn Messaging>,
    clock: Arc<dyn Clock>,
    remote_calls: Credits,
    lives: Mutex<HashMap<ActorPath, Life>>,
}

/// The last life of an actor on this node.
struct Life {
    epoch: Epoch,
    /// None once it is over.
    actor: Option<Resident>,
}

/// A living actor.
struct Resident {
    protocol: &'static str,
    /// An `ActorRef<P>`.
    mailbox: Box<dyn Any + Send>,
    deliver: Arc<dyn Fn(RemoteCall) -> Result<(), CallError> + Send + Sync>,
}

impl Directory {
    /// The directory of `node` in the cluster called `namespace`; calls to other nodes travel by `messaging`.
    pub fn new(node: NodeId, namespace: &str, messaging: Arc<dyn Messaging>, clock: Arc<dyn Clock>) -> Self {
        Self(Arc::new(Inner {
            prefix: format!("cluster.{}.call", subject::part(namespace)),
            remote_calls: Credits::new(REMOTE_CALLS_MAX, RETRY_AFTER_MS),
            lives: Mutex::default(),
            node,
            messaging,
            clock,
        }))
    }

    /// Makes an actor of this node reachable as `instance`. A later life replaces the one before; an earlier one, or the
    /// same one twice, is refused.
    pub fn register<P: Protocol>(&self, instance: InstanceRef, actor: ActorRef<P>) -> Result<Registered, CallError> {
        let mailbox = actor.clone();
        let deliver = move |call: RemoteCall| {
            let message = P::from_remote(call)?;
            mailbox.cast(message).map_err(|_| stopped(instance))
        };
        let resident = Resident {
            protocol: P::NAME,
            mailbox: Box::new(actor),
            deliver: Arc::new(deliver),
        };
        let mut lives = self.0.lock();
        if let Some(life) = lives.get(&instance.path)
            && (life.epoch > instance.epoch || (life.epoch == instance.epoch && life.actor.is_some()))
        {
            return Err(stale(instance, life.epoch));
        }
        let life = Life {
            epoch: instance.epoch,
            actor: Some(resident),
        };
        lives.insert(instance.path, life);
        Ok(Registered {
            directory: self.clone(),
            instance,
        })
    }

    /// The address of `instance`, which lives on `node`.
    pub fn addr<P: Protocol>(&self, instance: InstanceRef, node: &NodeId) -> Addr<P> {
        Addr::new(self.clone(), instance, node.clone())
    }

    /// Which node this is.
    pub fn node(&self) -> &NodeId {
        &self.0.node
    }

    /// How many calls from other nodes wait for their answers: the gauge.
    pub fn remote_calls(&self) -> u32 {
        self.0.remote_calls.in_use()
    }

    fn call_subject(&self, node: &NodeId, path: ActorPath) -> String {
        format!("{}.{}.{path}", self.0.prefix, subject::part(&node.0))
    }

    /// The mailbox of `instance`.
    fn mailbox<P: Protocol>(&self, instance: InstanceRef) -> Result<ActorRef<P>, CallError> {
        self.0.with_resident(instance, |resident| {
            let mailbox = resident.mailbox.downcast_ref::<ActorRef<P>>();
            mailbox
                .cloned()
                .ok_or_else(|| other_protocol(instance, resident.protocol, P::NAME))
        })
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, HashMap<ActorPath, Life>> {
        self.lives.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with_resident<T>(
        &self,
        instance: InstanceRef,
        act: impl FnOnce(&Resident) -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        let lives = self.lock();
        let nobody = || CallError::Unreachable(format!("{instance} does not live on {}", self.node));
        let life = lives.get(&instance.path).ok_or_else(nobody)?;
        if life.epoch != instance.epoch {
            return Err(stale(instance, life.epoch));
        }
        act(life.actor.as_ref().ok_or_else(nobody)?)
    }
}

fn stale(instance: InstanceRef, known: Epoch) -> CallError {
    CallError::Stale { instance, known }
}

fn stopped(instance: InstanceRef) -> CallError {
    CallError::Unreachable(format!("{instance} has stopped"))
}

fn other_protocol(instance: InstanceRef, spoken: &str, asked: &str) -> CallError {
    CallError::Codec(format!("{instance} speaks {spoken}, not {asked}"))
}

impl fmt::Debug for Directory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Directory({}, {} paths)", self.0.node, self.0.lock().len())
    }
}

/// Keeps an actor reachable; dropping it ends that. The epoch stays known, so that late calls are told apart.
#[derive(Debug)]
pub struct Registered {
    directory: Directory,
    instance: InstanceRef,
}

impl Drop for Registered {
    fn drop(&mut self) {
        let mut lives = self.directory.0.lock();
        let life = lives.get_mut(&self.instance.path);
        if let Some(life) = life.filter(|life| life.epoch == self.instance.epoch) {
            life.actor = None;
        }
    }
}

#[cfg(test)]
mod tests;
