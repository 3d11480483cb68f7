//! The gateway's way in, with a sign at the door: ready only while every role that a request needs is registered.

use std::sync::Arc;

use async_trait::async_trait;
use cluster_gateway::{Frontend, ModelCard, Readiness, TextStream};
use cluster_messages::{RequestError, Role, TextRequest};
use cluster_plan::Plan;
use cluster_roles::{ClusterFrontend, Peers};

/// The frontend of a plan's cluster.
pub(crate) struct Entrance {
    cluster: Arc<ClusterFrontend>,
    peers: Peers,
    needed: Vec<Role>,
}

impl Entrance {
    pub(crate) fn new(cluster: Arc<ClusterFrontend>, peers: Peers, plan: &Plan) -> Self {
        // Without a cache pages are computed again; without any other role of the plan nothing is answered.
        let is_needed = |role: &Role| *role != Role::Cache && plan.of_role(*role).next().is_some();
        Self {
            cluster,
            peers,
            needed: Role::ALL.into_iter().filter(is_needed).collect(),
        }
    }
}

#[async_trait]
impl Frontend for Entrance {
    async fn generate(&self, request: TextRequest) -> Result<TextStream, RequestError> {
        self.cluster.generate(request).await
    }

    fn models(&self) -> Arc<[ModelCard]> {
        self.cluster.models()
    }

    fn ready(&self) -> Readiness {
        let missing = self.needed.iter().find(|role| self.peers.of_role(**role).is_empty());
        match missing {
            Some(role) => Readiness::NotReady(format!("no {role} is registered")),
            None => self.cluster.ready(),
        }
    }
}
