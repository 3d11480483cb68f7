//! What a node gives to each of its actors.

use std::{sync::Arc, time::Duration};

use cluster_fabric::{Fabric, Lease};
use cluster_messages::{Capacity, Fingerprint, InstanceRef, Registration};
use cluster_telemetry::Metrics;
use cluster_transfer::{Exchange, Transfer};

use crate::{peers::Peers, status::Board};

/// A registration goes this long after its holder disappeared without a word.
const LEASE_TTL: Duration = Duration::from_secs(10);

/// A node's services. Cheap to clone.
#[derive(Clone)]
pub struct Host {
    /// Discovery, messaging, streams, addresses, clock, randomness.
    pub fabric: Fabric,
    /// Separates clusters that share servers.
    pub namespace: Arc<str>,
    /// The generation of the plan that this node executes.
    pub generation: u64,
    /// Who else is there.
    pub peers: Peers,
    /// Moves pages to tickets.
    pub transfer: Transfer,
    /// Opens tickets for pages.
    pub exchange: Exchange,
    /// Counters and gauges.
    pub metrics: Metrics,
    /// What everybody may see of the instances here.
    pub board: Board,
}

/// A published registration; it is withdrawn when this is dropped.
pub(crate) struct Registered {
    _lease: Lease,
}

impl Host {
    /// The registration of an instance that has nothing special; the caller fills in the rest.
    pub(crate) fn registration(&self, instance: InstanceRef) -> Registration {
        Registration {
            instance,
            node: self.fabric.node.clone(),
            generation: self.generation,
            model: Fingerprint::default(),
            layout: Fingerprint::default(),
            capacity: Capacity::default(),
            folds: Vec::new(),
            needs: Vec::new(),
            addresses: Vec::new(),
        }
    }

    /// Publishes a registration. From now on others find this instance.
    pub(crate) async fn register(&self, registration: Registration) -> Result<Registered, String> {
        let lease = self.fabric.discovery.register(registration, LEASE_TTL).await;
        lease
            .map(|_lease| Registered { _lease })
            .map_err(|error| error.to_string())
    }
}
