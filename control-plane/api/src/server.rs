//! The answering side: gRPC on a listener, with the standard health and reflection services beside ours.

use std::{future::Future, sync::Arc, time::Duration};

use async_trait::async_trait;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, transport::Server};

use crate::{
    DESCRIPTORS, Drain, Event, Fault, PlanView, Status,
    wire::{self, control_plane_server},
};

/// Knows a cluster and answers for it.
#[async_trait]
pub trait ControlPlane: Send + Sync + 'static {
    /// What runs, where, and how it is.
    async fn status(&self) -> Result<Status, Fault>;
    /// The plan in force.
    async fn plan(&self) -> Result<PlanView, Fault>;
    /// The spans of one request, as a JSON array.
    async fn trace(&self, request_id: &str) -> Result<String, Fault>;
    /// The events after `after_sequence`, oldest first.
    async fn events(&self, after_sequence: u64) -> Result<Vec<Event>, Fault>;
    /// Begins to drain; the process ends when that is done or `grace` is over. None: the topology's grace.
    async fn shutdown(&self, grace: Option<Duration>) -> Result<Drain, Fault>;
}

/// The server could not be set up or broke down.
#[derive(Debug, thiserror::Error)]
#[error("the control-plane API broke down: {0}")]
pub struct ServeError(#[from] tonic::transport::Error);

/// Answers on `listener` until `stop` is done.
pub async fn serve(
    listener: TcpListener,
    plane: Arc<dyn ControlPlane>,
    stop: impl Future<Output = ()> + Send,
) -> Result<(), ServeError> {
    let service = control_plane_server::ControlPlaneServer::new(Service(plane));
    let (health_reporter, health) = tonic_health::server::health_reporter();
    health_reporter
        .set_serving::<control_plane_server::ControlPlaneServer<Service>>()
        .await;
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()
        .expect("the descriptors were written by the same build");
    Server::builder()
        .add_service(service)
        .add_service(health)
        .add_service(reflection)
        .serve_with_incoming_shutdown(TcpListenerStream::new(listener), stop)
        .await?;
    Ok(())
}

struct Service(Arc<dyn ControlPlane>);

type Answer<T> = Result<Response<T>, tonic::Status>;

#[async_trait]
impl control_plane_server::ControlPlane for Service {
    async fn get_status(&self, _request: Request<wire::GetStatusRequest>) -> Answer<wire::GetStatusResponse> {
        Ok(Response::new(self.0.status().await?.into()))
    }

    async fn get_plan(&self, _request: Request<wire::GetPlanRequest>) -> Answer<wire::GetPlanResponse> {
        Ok(Response::new(self.0.plan().await?.into()))
    }

    async fn get_trace(&self, request: Request<wire::GetTraceRequest>) -> Answer<wire::GetTraceResponse> {
        let json = self.0.trace(&request.get_ref().request_id).await?;
        Ok(Response::new(wire::GetTraceResponse { json }))
    }

    async fn list_events(&self, request: Request<wire::ListEventsRequest>) -> Answer<wire::ListEventsResponse> {
        let events = self.0.events(request.get_ref().after_sequence).await?;
        let events = events.into_iter().map(Into::into).collect();
        Ok(Response::new(wire::ListEventsResponse { events }))
    }

    async fn shutdown(&self, request: Request<wire::ShutdownRequest>) -> Answer<wire::ShutdownResponse> {
        let grace = request
            .get_ref()
            .grace_s
            .map(|grace_s| Duration::from_secs(grace_s.into()));
        Ok(Response::new(self.0.shutdown(grace).await?.into()))
    }
}
