//! The asking side.

use std::time::Duration;

use tonic::transport::{Channel, Endpoint};

use crate::{
    Drain, Event, Fault, FaultKind, PlanView, Status,
    wire::{self, control_plane_client::ControlPlaneClient},
};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection to a cluster's control plane. Clones share it.
#[derive(Clone, Debug)]
pub struct Client {
    inner: ControlPlaneClient<Channel>,
}

impl Client {
    /// Connects to `address`, such as `127.0.0.1:7070`.
    pub async fn connect(address: &str) -> Result<Self, Fault> {
        let wrong = |_| {
            Fault::new(
                FaultKind::Invalid,
                format!("'{address}' is not an address"),
                "give host and port, such as 127.0.0.1:7070",
            )
        };
        let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(wrong)?;
        let endpoint = endpoint.connect_timeout(CONNECT_TIMEOUT).timeout(ANSWER_TIMEOUT);
        let channel = endpoint.connect().await.map_err(|_| {
            Fault::new(
                FaultKind::Unavailable,
                format!("nothing answers at {address}"),
                "start a cluster with 'cluster up FILE', or name its address with --api",
            )
        })?;
        Ok(Self {
            inner: ControlPlaneClient::new(channel),
        })
    }

    /// What runs, where, and how it is.
    pub async fn status(&mut self) -> Result<Status, Fault> {
        let answer = self.inner.get_status(wire::GetStatusRequest {}).await?;
        Ok(answer.into_inner().into())
    }

    /// The plan in force.
    pub async fn plan(&mut self) -> Result<PlanView, Fault> {
        let answer = self.inner.get_plan(wire::GetPlanRequest {}).await?;
        Ok(answer.into_inner().into())
    }

    /// The spans of one request, as a JSON array.
    pub async fn trace(&mut self, request_id: &str) -> Result<String, Fault> {
        let request_id = request_id.to_owned();
        let answer = self.inner.get_trace(wire::GetTraceRequest { request_id }).await?;
        Ok(answer.into_inner().json)
    }

    /// The events after `after_sequence`, oldest first.
    pub async fn events(&mut self, after_sequence: u64) -> Result<Vec<Event>, Fault> {
        let answer = self
            .inner
            .list_events(wire::ListEventsRequest { after_sequence })
            .await?;
        Ok(answer.into_inner().events.into_iter().map(Into::into).collect())
    }

    /// Asks the cluster to finish what it has, for at most `grace_s` or as long as its topology says, and to end.
    pub async fn shutdown(&mut self, grace_s: Option<u32>) -> Result<Drain, Fault> {
        let answer = self.inner.shutdown(wire::ShutdownRequest { grace_s }).await?;
        Ok(answer.into_inner().into())
    }
}
