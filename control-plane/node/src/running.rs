//! A cluster that runs in this process.

use std::{net::SocketAddr, time::Duration};

use cluster_fabric::Listening;
use cluster_gateway::Drained;
use cluster_messages::ActorPath;
use cluster_plan::Plan;
use cluster_roles::{Board, Host, State, Supervisor};
use tokio::{sync::mpsc, task::JoinHandle};

use crate::doors::Doors;

/// Why a running cluster is about to end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum End {
    /// The control-plane API was asked to end it, with this grace.
    Asked(Duration),
    /// An instance died more often than its policy allows.
    Failed(ActorPath),
}

/// A running cluster. `shutdown` ends it in order; dropping it ends it at once.
pub struct Running {
    plan: Plan,
    host: Host,
    supervisor: Supervisor,
    doors: Doors,
    stop_asked: mpsc::UnboundedReceiver<Duration>,
    following: JoinHandle<()>,
    _calls: Listening,
}

impl Running {
    pub(crate) fn new(
        plan: Plan,
        host: Host,
        supervisor: Supervisor,
        doors: Doors,
        stop_asked: mpsc::UnboundedReceiver<Duration>,
        following: JoinHandle<()>,
        calls: Listening,
    ) -> Self {
        Self {
            plan,
            host,
            supervisor,
            doors,
            stop_asked,
            following,
            _calls: calls,
        }
    }

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
        self.supervisor.kill(path);
    }

    /// Waits until there is a reason to end.
    pub async fn wait_for_end(&mut self) -> End {
        let board = self.host.board.clone();
        tokio::select! {
            Some(grace) = self.stop_asked.recv() => End::Asked(grace),
            instances = board.wait_for(|all| all.values().any(|one| one.state == State::Failed)) => {
                let failed = instances.iter().find(|(_, instance)| instance.state == State::Failed);
                End::Failed(*failed.expect("it was waited for").0)
            }
        }
    }

    /// Lets running requests end, then stops every instance. Returns what became of the requests.
    pub async fn shutdown(self) -> Option<Drained> {
        let drained = self.doors.close().await;
        self.supervisor.stop().await;
        self.following.abort();
        drained
    }
}
