//! A cluster that runs in this process.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Duration};

use cluster_fabric::Listening;
use cluster_gateway::{Drained, Gateway};
use cluster_messages::{ActorPath, Role};
use cluster_plan::Plan;
use cluster_roles::{Board, Host, Instance, State};
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use crate::{actors::Actors, doors::Doors};

/// Why a running cluster is about to end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum End {
    /// The control-plane API was asked to end it, with this grace.
    Asked(Duration),
    /// An instance died more often than its policy allows.
    Failed(ActorPath),
}

/// Ends all running requests, each with one error. A value of its own because `Running::shutdown` takes the cluster.
#[derive(Clone)]
pub struct Cut(Arc<Gateway>);

impl Cut {
    /// Does it; a drain in progress does not wait any longer.
    pub fn now(&self) {
        self.0.cut();
    }
}

/// A running cluster. `shutdown` ends it in order; dropping it ends it at once.
pub struct Running {
    pub(crate) plan: Plan,
    pub(crate) host: Host,
    pub(crate) doors: Doors,
    pub(crate) actors: Actors,
    pub(crate) stop_asked: mpsc::UnboundedReceiver<Duration>,
    /// Kept until the end: they stop when they are dropped.
    pub(crate) _attendants: (AbortOnDropHandle<()>, Listening),
}

impl Running {
    /// Where clients reach it.
    pub fn endpoint(&self) -> SocketAddr {
        self.doors.endpoint
    }

    /// Where the control-plane API listens.
    pub fn api(&self) -> SocketAddr {
        self.doors.api
    }

    /// The plan in force.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The states of all instances.
    pub fn board(&self) -> &Board {
        &self.host.board
    }

    /// The node's services: what its actors see.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// Ends an instance as a crash would, to see what follows.
    pub fn kill(&self, path: ActorPath) {
        self.actors.kill(path);
    }

    /// Waits until there is a reason to end.
    pub async fn wait_for_end(&mut self) -> End {
        let board = self.host.board.clone();
        tokio::select! {
            Some(grace) = self.stop_asked.recv() => End::Asked(grace),
            instances = board.wait_for(|all| lost(all).is_some()) => {
                End::Failed(lost(&instances).expect("it was waited for"))
            }
        }
    }

    /// Cuts running requests off, also during `shutdown`.
    pub fn cut(&self) -> Cut {
        Cut(self.doors.gateway().clone())
    }

    /// Lets running requests go on for at most `grace`, then stops every instance. Returns what became of the requests.
    /// Dropped before its end, it ends everything at once.
    pub async fn shutdown(self, grace: Duration) -> Option<Drained> {
        let drained = self.doors.close(grace).await;
        self.actors.stop().await;
        drained
    }
}

/// An instance that is down for good and that the cluster needs. A cache only saves work: without it all goes on.
fn lost(instances: &BTreeMap<ActorPath, Instance>) -> Option<ActorPath> {
    let mut failed = instances.iter().filter(|(_, instance)| instance.state == State::Failed);
    failed.find(|(path, _)| path.role != Role::Cache).map(|(path, _)| *path)
}
