//! The control-plane API of this node.

use std::{process, sync::Arc, time::Duration};

use async_trait::async_trait;
use cluster_api::{Blocks, ControlPlane, Drain, Event, Fault, FaultKind, Instance, InstanceState, PlanView, Status};
use cluster_gateway::{Frontend, Readiness};
use cluster_messages::{ActorPath, RequestId, Role};
use cluster_plan::{Emulation, Plan};
use cluster_roles::{Board, Instance as Seen, State};
use cluster_telemetry::{Metrics, TraceStore};
use tokio::sync::mpsc;

use crate::{entrance::Entrance, events::EventLog};

/// What the API answers from.
pub(crate) struct Control {
    pub(crate) plan: Plan,
    pub(crate) endpoint: String,
    pub(crate) board: Board,
    pub(crate) entrance: Arc<Entrance>,
    pub(crate) metrics: Metrics,
    pub(crate) traces: TraceStore,
    pub(crate) events: EventLog,
    pub(crate) started: std::time::Instant,
    /// Asks the node to end, with the grace it was given.
    pub(crate) stop: mpsc::UnboundedSender<Duration>,
}

impl Control {
    fn instance(&self, path: ActorPath, seen: &Seen) -> Instance {
        let node = self.plan.instance(path).map(|planned| planned.node.to_string());
        let load = seen.load;
        let has_blocks = matches!(path.role, Role::Prefill | Role::Decode);
        let blocks = Blocks {
            used: load.blocks_used.into(),
            cached: load.blocks_cached.into(),
            total: load.blocks_total.into(),
        };
        Instance {
            role: path.role.to_string(),
            path: path.to_string(),
            node: node.unwrap_or_default(),
            state: state_of(seen.state),
            epoch: seen.epoch.0,
            restarts: seen.restarts,
            pid: process::id(),
            steps: load.steps,
            running: load.running,
            waiting: load.waiting,
            blocks: has_blocks.then_some(blocks),
            last_exit: seen.last_exit.as_ref().map(ToString::to_string),
        }
    }
}

fn state_of(state: State) -> InstanceState {
    match state {
        State::Starting => InstanceState::Starting,
        State::Ready => InstanceState::Ready,
        State::BackingOff => InstanceState::Restarting,
        State::Stopped => InstanceState::Stopped,
        State::Failed => InstanceState::Failed,
    }
}

#[async_trait]
impl ControlPlane for Control {
    async fn status(&self) -> Result<Status, Fault> {
        let instances = self.board.snapshot();
        Ok(Status {
            name: self.plan.topology.clone(),
            models: self.plan.model.served_names.clone(),
            endpoint: self.endpoint.clone(),
            uptime_ms: self.started.elapsed().as_millis() as u64,
            generation: self.plan.generation,
            ready: self.entrance.ready() == Readiness::Ready,
            stand_ins: self.plan.emulation.as_ref().map(Emulation::lines).unwrap_or_default(),
            instances: instances
                .iter()
                .map(|(path, seen)| self.instance(*path, seen))
                .collect(),
        })
    }

    async fn plan(&self) -> Result<PlanView, Fault> {
        let internal = |error: serde_json::Error| Fault::new(FaultKind::Internal, error.to_string(), "");
        Ok(PlanView {
            generation: self.plan.generation,
            text: cluster_plan::render(&self.plan),
            json: serde_json::to_string(&self.plan).map_err(internal)?,
        })
    }

    async fn trace(&self, request_id: &str) -> Result<String, Fault> {
        let wrong = |error| {
            let reason = format!("'{request_id}' is not a request id: {error}");
            Fault::new(
                FaultKind::Invalid,
                reason,
                "take the id of an answer, or its x-request-id header",
            )
        };
        let id: RequestId = request_id.parse().map_err(wrong)?;
        let spans = self.traces.by_request(&id.to_string());
        if spans.is_empty() {
            let reason = format!("request {id} is not known here");
            let remedy = "ask while the cluster that served it runs; only the last requests are kept";
            return Err(Fault::new(FaultKind::NotFound, reason, remedy));
        }
        serde_json::to_string(&spans).map_err(|error| Fault::new(FaultKind::Internal, error.to_string(), ""))
    }

    async fn events(&self, after_sequence: u64) -> Result<Vec<Event>, Fault> {
        Ok(self.events.after(after_sequence))
    }

    async fn shutdown(&self, grace: Option<Duration>) -> Result<Drain, Fault> {
        let grace = grace.unwrap_or(self.plan.limits.drain.into());
        let in_flight = self.metrics.requests_in_flight().get();
        // A node that is stopping already needs no second word.
        let _stopping = self.stop.send(grace);
        Ok(Drain {
            in_flight: in_flight.max(0) as u32,
            grace_s: u32::try_from(grace.as_secs()).unwrap_or(u32::MAX),
        })
    }
}
