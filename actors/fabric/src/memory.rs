//! The in-memory twins: one world, any number of nodes in one process, and the faults a test wants to see.
//!
//! ```text
//! MemoryFabric ── node("a") ─► Fabric { discovery, documents, messaging, streams, … }
//!      │      └── node("b") ─► Fabric   the same world seen from another node
//!      └── faults() ─► cut a from b, lose, repeat or delay messages, take leases away
//! ```
//! Leases of this world do not run out by themselves: the holder either lives in this process or was dropped. What a
//! missed renewal does is done by [`Faults::lose_lease`].

mod bus;
mod carrier;
mod documents;
mod follow;
mod links;
mod registry;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use cluster_messages::{InstanceRef, NodeId};

use self::{
    bus::{Bus, NodeBus},
    carrier::{NodeCarrier, Switchboard},
    documents::MemoryDocuments,
    links::Links,
    registry::Registry,
};
pub use links::MessageFaults;

use crate::{Clock, Directory, Entropy, Fabric, Messaging, streams::Form};

/// A world has one cluster in it.
const NAMESPACE: &str = "local";

/// A cluster's world inside one process. Clones share it.
#[derive(Clone)]
pub struct MemoryFabric {
    clock: Arc<dyn Clock>,
    entropy: Entropy,
    form: Form,
    links: Arc<Links>,
    registry: Arc<Registry>,
    documents: Arc<MemoryDocuments>,
    bus: Arc<Bus>,
    switchboard: Arc<Switchboard>,
    views: Arc<AtomicU64>,
}

impl MemoryFabric {
    /// An empty world. Request streams move values as they are.
    pub fn new(clock: Arc<dyn Clock>, entropy: Entropy) -> Self {
        let links = Arc::new(Links::new(entropy.fork("faults")));
        Self {
            bus: Arc::new(Bus::new(clock.clone(), links.clone())),
            registry: Arc::default(),
            documents: Arc::default(),
            switchboard: Arc::default(),
            views: Arc::default(),
            form: Form::Values,
            clock,
            entropy,
            links,
        }
    }

    /// The same world with request streams that encode every value: shows in a test what could not leave the process.
    #[must_use]
    pub fn encoding(mut self) -> Self {
        self.form = Form::Bytes;
        self
    }

    /// The world as `node` sees it. Asked again, as after a restart of the node, it draws other random numbers.
    pub fn node(&self, node: NodeId) -> Fabric {
        let view = self.views.fetch_add(1, Ordering::Relaxed);
        let carrier = NodeCarrier {
            node: node.clone(),
            form: self.form,
            links: self.links.clone(),
            switchboard: self.switchboard.clone(),
        };
        let messaging: Arc<dyn Messaging> = Arc::new(NodeBus {
            node: node.clone(),
            bus: self.bus.clone(),
        });
        Fabric {
            discovery: Arc::new(self.registry.clone()),
            documents: Arc::new(self.documents.clone()),
            streams: crate::Streams::new(Arc::new(carrier), self.clock.clone()),
            directory: Directory::new(node.clone(), NAMESPACE, messaging.clone(), self.clock.clone()),
            messaging,
            clock: self.clock.clone(),
            entropy: self.entropy.fork(&format!("{node}/{view}")),
            node,
        }
    }

    /// What can go wrong here.
    pub fn faults(&self) -> Faults {
        Faults {
            links: self.links.clone(),
            registry: self.registry.clone(),
        }
    }
}

impl fmt::Debug for MemoryFabric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MemoryFabric")
    }
}

/// Makes things go wrong in a [`MemoryFabric`].
#[derive(Clone)]
pub struct Faults {
    links: Arc<Links>,
    registry: Arc<Registry>,
}

impl Faults {
    /// Breaks all streams between two nodes, refuses new ones, and lets no message through.
    pub fn cut(&self, one: &NodeId, other: &NodeId) {
        self.links.cut(one, other);
    }

    /// Connects two nodes again. What broke stays broken.
    pub fn heal(&self, one: &NodeId, other: &NodeId) {
        self.links.heal(one, other);
    }

    /// What happens to messages between different nodes from now on.
    pub fn set_message_faults(&self, faults: MessageFaults) {
        self.links.set_message_faults(faults);
    }

    /// Ends the lease of `instance` as if it had run out.
    pub fn lose_lease(&self, instance: InstanceRef) {
        self.registry.remove(instance);
    }
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Faults")
    }
}

#[cfg(test)]
mod tests;
