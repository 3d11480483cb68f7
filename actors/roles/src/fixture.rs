//! A node for tests, with nobody on it yet.

use std::sync::Arc;

use cluster_fabric::{Clock, Entropy, MemoryFabric, SystemClock};
use cluster_messages::{ActorPath, Deadline, Header, InstanceRef, NodeId, RequestId, TraceContext};
use cluster_telemetry::Metrics;
use cluster_transfer::Exchange;

use crate::{Board, Host, Peers, RestartPolicy, RoleSpec, Supervisor};

pub(crate) async fn host() -> Host {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::starting_at(0));
    let exchange = Exchange::new(clock.clone());
    let fabric = MemoryFabric::new(clock, Entropy::from_seed(1)).node(NodeId("n".into()));
    Host {
        peers: Peers::watch(&fabric).await.unwrap(),
        fabric,
        namespace: "test".into(),
        generation: 1,
        transfer: exchange.transfer(),
        exchange,
        metrics: Metrics::new(),
        board: Board::default(),
    }
}

pub(crate) async fn supervisor(host: &Host) -> Supervisor {
    Supervisor::start(host.clone(), RestartPolicy::default()).await.unwrap()
}

/// Starts an actor; who it is when it is registered.
pub(crate) async fn start(host: &Host, supervisor: &Supervisor, spec: impl RoleSpec) -> InstanceRef {
    let path = spec.path();
    supervisor.take(Arc::new(spec));
    living(host, path).await
}

/// Waits until an actor is registered.
pub(crate) async fn living(host: &Host, path: ActorPath) -> InstanceRef {
    let mut found = None;
    host.peers
        .wait_for(|view| {
            found = view.keys().copied().find(|instance| instance.path == path);
            found.is_some()
        })
        .await;
    found.expect("it was waited for")
}

pub(crate) fn header(request: u128) -> Header {
    Header {
        request: RequestId(request),
        deadline: Deadline(u64::MAX),
        trace: TraceContext::default(),
    }
}
