//! Brings a cluster up on this machine: everything in this process, over the in-memory twins of discovery and messaging.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

use cluster_fabric::{Entropy, Fabric, MemoryFabric, SystemClock, clock};
use cluster_gateway::ModelCard;
use cluster_media::RuleError;
use cluster_messages::{ActorPath, NodeId, RequestError};
use cluster_plan::Plan;
use cluster_roles::{Board, ClusterFrontend, Host, Instance, Peers, RestartPolicy, State};
use cluster_telemetry::{Metrics, TraceStore};
use cluster_topologies::{Problem, Resolved};
use cluster_transfer::Exchange;
use tokio::{net::TcpListener, sync::mpsc};
use tokio_util::task::AbortOnDropHandle;

use crate::{
    actors::Actors,
    control::Control,
    doors::{self, Doors, Listeners},
    entrance::Entrance,
    events::EventLog,
    inventory,
    model::{ModelError, ModelLocation, ServedModel},
    plans::executed_plan,
    probe,
    running::Running,
    specs,
};

/// How long instances may take to start, all together.
const START_MAX: Duration = Duration::from_secs(120);

/// What to bring up, and how.
pub struct Options {
    /// The topology.
    pub topology: Resolved,
    /// Where its model lies.
    pub model: ModelLocation,
    /// Another port than the topology's; 0 takes any that is free.
    pub port: Option<u16>,
    /// Where the control-plane API listens; port 0 takes any that is free.
    pub api: SocketAddr,
    /// Where the process keeps its traces.
    pub traces: TraceStore,
    /// Ids and jitter; a fixed seed makes a run repeatable.
    pub entropy: Entropy,
}

/// Why a cluster did not come up.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The topology does not fit this machine. The problems name its fields.
    #[error("{}", problems_text(.0))]
    Plan(Vec<Problem>),
    /// The model does not load.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {reason}\n  help: free it, or choose another with {option}")]
    Listen {
        /// Which.
        address: SocketAddr,
        /// Why.
        reason: io::Error,
        /// The option that chooses another one.
        option: &'static str,
    },
    /// An instance did not start.
    #[error("{instance} did not start: {reason}")]
    Instance {
        /// Which.
        instance: String,
        /// Why.
        reason: String,
    },
    /// No token came through.
    #[error("the instances run, but no token came through: {0}")]
    Probe(RequestError),
    /// Part of the runtime refused.
    #[error("{0}")]
    Runtime(String),
}

fn problems_text(problems: &[Problem]) -> String {
    let lines: Vec<_> = problems.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

/// Starts everything and returns when a token has gone through every role.
pub async fn start(options: Options) -> Result<Running, StartError> {
    let started = Instant::now();
    let router = &options.topology.router;
    // Addresses first: a port that is taken should not cost the time of loading a model.
    let listeners = Listeners {
        endpoint: listen(router.host, options.port.unwrap_or(router.port), "--port").await?,
        api: listen(options.api.ip(), options.api.port(), "--api").await?,
    };
    let model = load(&options).await?;
    let plan = executed_plan(&options.topology, &model.facts).map_err(StartError::Plan)?;

    let host = host(&plan, options.entropy.clone()).await?;
    let calls = host.fabric.directory.listen().await.map_err(runtime)?;
    // From here on things run. Whatever fails below drops their owners, which ends them.
    let actors = Actors::start(&host, restart_policy(&plan)).await.map_err(runtime)?;
    let events = EventLog::default();
    let following = events.clone().follow(host.board.clone(), host.fabric.clock.clone());
    let following = AbortOnDropHandle::new(tokio::spawn(following));
    let frontend = Arc::new(ClusterFrontend::new(host.clone(), cards(&plan, &model, &host.fabric)));
    let (model, text) = model.into_parts(&plan);
    for spec in specs::of_plan(&plan, &model, &Arc::new(text)) {
        actors.take(spec);
    }
    prove(&host, &frontend).await?;
    let entrance = Arc::new(Entrance::new(frontend, host.peers.clone(), &plan));

    let endpoint_address = listeners.endpoint.local_addr().map_err(runtime)?;
    let (stop, stop_asked) = mpsc::unbounded_channel();
    let control = Control {
        plan: plan.clone(),
        endpoint: format!("http://{endpoint_address}"),
        board: host.board.clone(),
        entrance: entrance.clone(),
        metrics: host.metrics.clone(),
        traces: options.traces,
        events,
        started,
        stop,
    };
    let gateway = doors::gateway(&host, &plan, entrance).map_err(unreadable_host)?;
    Ok(Running {
        doors: Doors::open(listeners, gateway, control).map_err(runtime)?,
        plan,
        host,
        actors,
        stop_asked,
        _attendants: (following, calls),
    })
}

fn unreadable_host(error: RuleError) -> StartError {
    let help = "write a name such as images.example.com, or *.example.com for all below it";
    StartError::Plan(vec![Problem::new(
        "wrong-host",
        "limits.media.allowed_hosts",
        error.to_string(),
        help,
    )])
}

fn runtime(error: impl ToString) -> StartError {
    StartError::Runtime(error.to_string())
}

async fn listen(host: IpAddr, port: u16, option: &'static str) -> Result<TcpListener, StartError> {
    let address = SocketAddr::new(host, port);
    TcpListener::bind(address).await.map_err(|reason| StartError::Listen {
        address,
        reason,
        option,
    })
}

/// Loading takes a second of computing: not on the threads that serve.
async fn load(options: &Options) -> Result<ServedModel, StartError> {
    let (topology, location) = (options.topology.clone(), options.model.clone());
    let loaded = tokio::task::spawn_blocking(move || ServedModel::load(&topology, &location)).await;
    Ok(loaded.map_err(runtime)??)
}

async fn host(plan: &Plan, entropy: Entropy) -> Result<Host, StartError> {
    let clock = SystemClock::shared();
    let exchange = Exchange::new(clock.clone());
    let fabric = MemoryFabric::new(clock, entropy).node(NodeId(inventory::LOCAL.into()));
    let peers = Peers::watch(&fabric).await.map_err(StartError::Runtime)?;
    Ok(Host {
        fabric,
        namespace: plan.topology.as_str().into(),
        generation: plan.generation,
        peers,
        transfer: exchange.transfer(),
        exchange,
        metrics: Metrics::new(),
        board: Board::default(),
    })
}

fn restart_policy(plan: &Plan) -> RestartPolicy {
    let restart = &plan.restart;
    RestartPolicy {
        backoff_min: restart.backoff.into(),
        backoff_max: restart.backoff_max.into(),
        restarts_max: restart.max_restarts,
        window: restart.window.into(),
    }
}

fn cards(plan: &Plan, model: &ServedModel, fabric: &Fabric) -> Arc<[ModelCard]> {
    let card = |name: &String| ModelCard {
        id: name.clone(),
        created: fabric.clock.now() / 1000,
        owned_by: "cluster".into(),
        context_max: plan.model.context,
        emulated_by: plan.emulation.as_ref().map(|emulation| emulation.stand_in.clone()),
        fingerprint: Some(format!("fp_{:016x}", model.fingerprint.0 as u64)),
    };
    plan.model.served_names.iter().map(card).collect()
}

/// Waits for every instance, and then for a token.
async fn prove(host: &Host, frontend: &ClusterFrontend) -> Result<(), StartError> {
    let deadline = host.fabric.clock.deadline_in(START_MAX);
    let settled = |instances: &Instances| {
        instances.values().all(|instance| instance.state == State::Ready) || failed(instances).is_some()
    };
    let waiting = host.board.wait_for(settled);
    let instances = match clock::before(&*host.fabric.clock, deadline, waiting).await {
        Ok(instances) => instances,
        Err(_) => host.board.snapshot(),
    };
    if let Some((path, instance)) = failed(&instances) {
        let reason = instance
            .last_exit
            .as_ref()
            .map_or_else(|| "it takes too long".into(), ToString::to_string);
        return Err(StartError::Instance {
            instance: path.to_string(),
            reason,
        });
    }
    probe::until_a_token_passes(&host.fabric, frontend)
        .await
        .map_err(StartError::Probe)?;
    frontend.set_proven();
    Ok(())
}

type Instances = std::collections::BTreeMap<ActorPath, Instance>;

/// While a cluster starts, the first failure is the last: what fails now fails again.
fn failed(instances: &Instances) -> Option<(&ActorPath, &Instance)> {
    instances
        .iter()
        .find(|(_, instance)| matches!(instance.state, State::BackingOff | State::Failed))
}
