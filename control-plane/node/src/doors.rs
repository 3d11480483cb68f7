//! What clients and operators connect to: the HTTP endpoint and the control-plane API.

use std::{io, net::SocketAddr, sync::Arc};

use cluster_api::ServeError;
use cluster_fabric::Fabric;
use cluster_gateway::{Drained, Environment, Gateway, Limits, Settings};
use cluster_messages::RequestId;
use cluster_plan::Plan;
use cluster_roles::{ClusterFrontend, Host};
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use crate::control::Control;

/// Both listeners, served.
pub(crate) struct Doors {
    pub(crate) endpoint: SocketAddr,
    pub(crate) api: SocketAddr,
    stop_endpoint: CancellationToken,
    stop_api: CancellationToken,
    serving: JoinHandle<Drained>,
    answering: JoinHandle<Result<(), ServeError>>,
}

impl Doors {
    /// Starts to serve.
    pub(crate) fn open(
        host: &Host,
        plan: &Plan,
        frontend: Arc<ClusterFrontend>,
        control: Control,
        endpoint: TcpListener,
        api: TcpListener,
    ) -> io::Result<Self> {
        let (stop_endpoint, stop_api) = (CancellationToken::new(), CancellationToken::new());
        let environment = Arc::new(NodeEnvironment(host.fabric.clone()));
        let gateway = Gateway::new(settings(plan), frontend, host.metrics.clone(), environment);
        Ok(Self {
            endpoint: endpoint.local_addr()?,
            api: api.local_addr()?,
            serving: tokio::spawn(cluster_gateway::serve(
                endpoint,
                gateway,
                stop_endpoint.clone().cancelled_owned(),
            )),
            answering: tokio::spawn(cluster_api::serve(
                api,
                Arc::new(control),
                stop_api.clone().cancelled_owned(),
            )),
            stop_endpoint,
            stop_api,
        })
    }

    /// Stops to accept, lets running requests end within the gateway's grace, then closes the API.
    pub(crate) async fn close(self) -> Option<Drained> {
        self.stop_endpoint.cancel();
        let drained = self.serving.await.ok();
        self.stop_api.cancel();
        // The API's clients get their last answer; what else goes wrong with it no longer matters.
        let _ended = self.answering.await;
        drained
    }
}

fn settings(plan: &Plan) -> Settings {
    let limits = &plan.limits;
    Settings {
        requests_max: limits.requests_max as usize,
        request_time: limits.timeout.into(),
        grace: limits.drain.into(),
        limits: Limits {
            body_bytes_max: limits.body_max.bytes() as usize,
            ..Limits::default()
        },
        ..Settings::default()
    }
}

struct NodeEnvironment(Fabric);

impl Environment for NodeEnvironment {
    fn cluster_ms(&self) -> u64 {
        self.0.clock.now()
    }

    fn unix_seconds(&self) -> u64 {
        // The cluster clock starts at the time of day.
        self.0.clock.now() / 1000
    }

    fn request_id(&self) -> RequestId {
        self.0.entropy.request_id()
    }
}
