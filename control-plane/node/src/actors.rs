//! The actors of this node, owned: whoever drops them ends them.

use std::sync::Arc;

use cluster_messages::ActorPath;
use cluster_roles::{Host, RestartPolicy, RoleSpec, Supervisor};
use tokio::runtime::Handle;

/// A supervisor and all it supervises. `stop` ends them in order; dropping this ends them at once.
pub(crate) struct Actors {
    supervisor: Supervisor,
    runtime: Handle,
    is_stopped: bool,
}

impl Actors {
    /// Nobody yet.
    pub(crate) async fn start(host: &Host, policy: RestartPolicy) -> Result<Self, String> {
        let supervisor = Supervisor::start(host.clone(), policy).await;
        Ok(Self {
            supervisor: supervisor.map_err(|error| error.to_string())?,
            runtime: Handle::current(),
            is_stopped: false,
        })
    }

    /// Takes charge of an actor and starts it.
    pub(crate) fn take(&self, spec: Arc<dyn RoleSpec>) {
        self.supervisor.take(spec);
    }

    /// Ends an actor as a crash would.
    pub(crate) fn kill(&self, path: ActorPath) {
        self.supervisor.kill(path);
    }

    /// Stops everyone and waits until they have stopped.
    pub(crate) async fn stop(mut self) {
        self.supervisor.stop().await;
        self.is_stopped = true;
    }
}

impl Drop for Actors {
    fn drop(&mut self) {
        if self.is_stopped {
            return;
        }
        // Dropping cannot wait for them. A runtime that is ending takes them along anyway.
        let supervisor = self.supervisor.clone();
        self.runtime.spawn(async move { supervisor.stop().await });
    }
}
