//! What clients and operators connect to: the HTTP endpoint and the control-plane API.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use cluster_api::ServeError;
use cluster_fabric::Fabric;
use cluster_gateway::{Drained, Environment, Gateway, Limits, MediaLimits, Settings};
use cluster_media::{HostRule, HostRules, RuleError};
use cluster_messages::RequestId;
use cluster_plan::Plan;
use cluster_roles::Host;
use cluster_topologies::schema::MediaLimits as Declared;
use tokio::{net::TcpListener, sync::oneshot};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::AbortOnDropHandle,
};

use crate::{control::Control, entrance::Entrance};

/// What is listened on before anything is served.
pub(crate) struct Listeners {
    pub(crate) endpoint: TcpListener,
    pub(crate) api: TcpListener,
}

/// Both listeners, served. Dropping it closes both at once.
pub(crate) struct Doors {
    pub(crate) endpoint: SocketAddr,
    pub(crate) api: SocketAddr,
    gateway: Arc<Gateway>,
    stop_endpoint: oneshot::Sender<Duration>,
    stop_api: DropGuard,
    serving: AbortOnDropHandle<Drained>,
    answering: AbortOnDropHandle<Result<(), ServeError>>,
}

impl Doors {
    /// Starts to serve.
    pub(crate) fn open(listeners: Listeners, gateway: Arc<Gateway>, control: Control) -> io::Result<Self> {
        let Listeners { endpoint, api } = listeners;
        let (endpoint_address, api_address) = (endpoint.local_addr()?, api.local_addr()?);
        let (stop_endpoint, stopped) = oneshot::channel();
        // Without a word the doors are being dropped, and the task with them.
        let stopped = async { stopped.await.unwrap_or_default() };
        let stop_api = CancellationToken::new();
        let answering = cluster_api::serve(api, Arc::new(control), stop_api.clone().cancelled_owned());
        Ok(Self {
            endpoint: endpoint_address,
            api: api_address,
            serving: spawn(cluster_gateway::serve(endpoint, gateway.clone(), stopped)),
            answering: spawn(answering),
            gateway,
            stop_endpoint,
            stop_api: stop_api.drop_guard(),
        })
    }

    /// What ends running requests early.
    pub(crate) fn gateway(&self) -> &Arc<Gateway> {
        &self.gateway
    }

    /// Stops to accept, lets running requests end within `grace`, then closes the API.
    pub(crate) async fn close(self, grace: Duration) -> Option<Drained> {
        // An error means that it has ended already, as the next line finds out.
        let _ended = self.stop_endpoint.send(grace);
        let drained = self.serving.await.ok();
        drop(self.stop_api);
        // The API's clients get their last answer; what else goes wrong with it no longer matters.
        let _ended = self.answering.await;
        drained
    }
}

fn spawn<T: Send + 'static>(task: impl Future<Output = T> + Send + 'static) -> AbortOnDropHandle<T> {
    AbortOnDropHandle::new(tokio::spawn(task))
}

/// The gateway of `plan` before `entrance`.
pub(crate) fn gateway(host: &Host, plan: &Plan, entrance: Arc<Entrance>) -> Result<Arc<Gateway>, RuleError> {
    let environment = Arc::new(NodeEnvironment(host.fabric.clone()));
    Ok(Gateway::new(
        settings(plan)?,
        entrance,
        host.metrics.clone(),
        environment,
    ))
}

fn settings(plan: &Plan) -> Result<Settings, RuleError> {
    let limits = &plan.limits;
    Ok(Settings {
        requests_max: limits.requests_max as usize,
        request_time: limits.timeout.into(),
        limits: Limits {
            body_bytes_max: limits.body_max.bytes() as usize,
            media: media_limits(&limits.media)?,
            ..Limits::default()
        },
        ..Settings::default()
    })
}

fn media_limits(declared: &Declared) -> Result<MediaLimits, RuleError> {
    let hosts = declared.allowed_hosts.iter().map(|host| host.parse::<HostRule>());
    Ok(MediaLimits {
        allowed_hosts: HostRules::new(hosts.collect::<Result<_, _>>()?),
        bytes_max: declared.bytes_max.bytes(),
        pixels_max: declared.pixels_max,
        count_max: declared.count_max as usize,
        fetch_timeout: declared.fetch_timeout.into(),
        ..MediaLimits::default()
    })
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
