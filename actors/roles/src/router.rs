//! The router role: keeps a view of who serves, how busy they are and what they hold, and answers who should serve a
//! request. The decision itself is a pure function of that view (`cluster-routing`); this actor feeds it and traces it.

use async_trait::async_trait;
use cluster_fabric::{Call, Change, Registered as Reachable, Subscription, Wire, protocol, wire};
use cluster_messages::{ActorPath, Deadline, InstanceRef, KvEvent, LoadReport, RequestError, Route, RouteDecision};
use cluster_routing::{Applied, Index, Policy, PolicyState, Refusal, View, choose};
use cluster_telemetry::{
    names::{attributes, spans},
    set_parent,
};
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use tracing::field::Empty;

use crate::{
    host::{Host, Registered},
    subjects,
    supervisor::{Life, RoleSpec, spawn_linked},
};

/// Events that may wait for the router; when more do, the newest are lost, which the sequence numbers show.
const EVENTS_MAX: usize = 65_536;

/// A decision, and the name under which the router counts it as load.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Routing {
    pub(crate) decision: RouteDecision,
    pub(crate) ticket: u64,
}

/// The work of a routing is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Release {
    pub(crate) ticket: u64,
}

protocol! {
    /// What a router is asked and told.
    pub(crate) enum RouterMessage = "router" {
        /// Who serves this request?
        Choose(Route) -> Routing,
        /// It is over.
        Release(Release) -> (),
    }
    local {
        /// Somebody came or went.
        Changed(Change),
        /// Somebody's blocks changed.
        Blocks(KvEvent),
        /// Somebody told how busy it is.
        Load(LoadReport),
    }
}

/// How to start a router.
pub struct RouterSpec {
    /// Its name.
    pub path: ActorPath,
    /// By what it chooses.
    pub policy: Policy,
}

#[async_trait]
impl RoleSpec for RouterSpec {
    fn path(&self) -> ActorPath {
        self.path
    }

    async fn spawn(&self, life: Life) -> Result<ActorCell, String> {
        let supervisor = life.supervisor.clone();
        spawn_linked(RouterActor { life }, self.policy, supervisor).await
    }
}

struct RouterActor {
    life: Life,
}

pub(crate) struct RouterState {
    policy: Policy,
    memory: PolicyState,
    view: View,
    index: Index,
    /// Dropped with the state, which ends them.
    _feeds: JoinSet<()>,
    _reachable: Reachable,
    _registered: Registered,
}

impl Actor for RouterActor {
    type Msg = RouterMessage;
    type State = RouterState;
    type Arguments = Policy;

    async fn pre_start(
        &self,
        myself: ActorRef<RouterMessage>,
        policy: Policy,
    ) -> Result<RouterState, ActorProcessingErr> {
        let Life { host, instance, .. } = &self.life;
        // Events first, then registrations: an instance that appears is asked for a snapshot, whose answer must find us.
        let messaging = &host.fabric.messaging;
        let kv = messaging.subscribe(&subjects::all_kv(host), EVENTS_MAX).await?;
        let load = messaging.subscribe(&subjects::all_load(host), EVENTS_MAX).await?;
        let mut changes = host.fabric.discovery.watch().await?;
        let mut feeds = JoinSet::new();
        feeds.spawn(feed(kv, myself.clone(), RouterMessage::Blocks));
        feeds.spawn(feed(load, myself.clone(), RouterMessage::Load));
        let actor = myself.clone();
        feeds.spawn(async move {
            while let Some(change) = changes.next().await {
                if actor.cast(RouterMessage::Changed(change)).is_err() {
                    break;
                }
            }
        });
        let _reachable = host.fabric.directory.register(*instance, myself)?;
        let _registered = host.register(host.registration(*instance)).await?;
        let (view, index, memory) = (View::new(), Index::new(), PolicyState::default());
        Ok(RouterState {
            policy,
            memory,
            view,
            index,
            _feeds: feeds,
            _reachable,
            _registered,
        })
    }

    async fn handle(
        &self,
        _: ActorRef<RouterMessage>,
        message: RouterMessage,
        state: &mut RouterState,
    ) -> Result<(), ActorProcessingErr> {
        let host = &self.life.host;
        match message {
            RouterMessage::Choose(call) => state.answer(host, self.life.instance, call),
            RouterMessage::Release(call) => state.view.end(call.request.ticket),
            RouterMessage::Load(report) => {
                state.view.report(&report);
            }
            RouterMessage::Blocks(event) => {
                if matches!(state.index.apply(&event), Applied::Gap { .. }) {
                    ask_for_snapshot(host, event.instance).await;
                }
            }
            RouterMessage::Changed(change) => state.take_in(host, change).await,
        }
        Ok(())
    }
}

impl RouterState {
    fn answer(&mut self, host: &Host, instance: InstanceRef, call: Call<Route, Routing>) {
        let Call {
            request: route, reply, ..
        } = call;
        self.view.expire(Deadline(host.fabric.clock.now()));
        match self.choose_traced(&route, instance) {
            Ok(decision) => {
                let ticket = self.view.begin(&route, &decision);
                reply.send(Routing { decision, ticket });
            }
            Err(error) => reply.fail(error),
        }
    }

    /// Chooses, and leaves everything that was considered in the trace.
    fn choose_traced(&mut self, route: &Route, instance: InstanceRef) -> Result<RouteDecision, RequestError> {
        let span = tracing::info_span!(
            spans::ROUTER_CHOOSE,
            instance = %instance.path,
            { attributes::POLICY } = self.policy.name(),
            { attributes::CANDIDATES } = Empty,
            { attributes::CHOSEN_DECODE } = Empty,
            { attributes::CHOSEN_PREFILL } = Empty,
        );
        set_parent(&span, &route.header.trace.traceparent);
        let chosen = choose(route, &self.view, &self.index, self.policy, &mut self.memory);
        let candidates = match &chosen {
            Ok(decision) => &decision.candidates,
            Err(refusal) => &refusal.candidates,
        };
        let json = serde_json::to_string(candidates).expect("candidates are plain numbers and texts");
        span.record(attributes::CANDIDATES, json);
        let decision = chosen.map_err(|Refusal { error, .. }| error)?;
        span.record(attributes::CHOSEN_DECODE, decision.decode.path.to_string());
        if let Some(prefill) = decision.prefill {
            span.record(attributes::CHOSEN_PREFILL, prefill.path.to_string());
        }
        Ok(decision)
    }

    async fn take_in(&mut self, host: &Host, change: Change) {
        match change {
            Change::Put(registration) => {
                let instance = registration.instance;
                if self.view.register(registration) {
                    ask_for_snapshot(host, instance).await;
                }
            }
            Change::Gone(instance) => self.gone(instance),
            Change::Resync(all) => {
                let living: Vec<_> = all.iter().map(|registration| registration.instance).collect();
                let known: Vec<_> = self
                    .view
                    .instances()
                    .filter(|instance| !living.contains(instance))
                    .collect();
                known.into_iter().for_each(|instance| self.gone(instance));
                for registration in all {
                    let instance = registration.instance;
                    self.view.register(registration);
                    ask_for_snapshot(host, instance).await;
                }
            }
        }
    }

    fn gone(&mut self, instance: InstanceRef) {
        self.view.unregister(instance);
        self.index.forget(instance);
    }
}

/// Only workers hold blocks. A snapshot that is not needed does no harm.
async fn ask_for_snapshot(host: &Host, instance: InstanceRef) {
    use cluster_messages::Role;
    if !matches!(instance.path.role, Role::Prefill | Role::Decode) {
        return;
    }
    let subject = subjects::snapshot(host, instance);
    if let Err(error) = host
        .fabric
        .messaging
        .publish(&subject, cluster_fabric::Message::default())
        .await
    {
        tracing::debug!(%instance, %error, "could not ask for a snapshot; the next gap asks again");
    }
}

/// Puts what a subscription delivers into the mailbox. A mailbox message a few hundred times a second per instance is
/// what the router is for; bursts wait in the subscription, which is bounded.
async fn feed<T: Wire>(mut events: Subscription, router: ActorRef<RouterMessage>, wrap: fn(T) -> RouterMessage) {
    while let Some(delivery) = events.next().await {
        match wire::decode::<T>(&delivery.message.payload) {
            Err(error) => tracing::warn!(subject = delivery.subject, %error, "event not understood"),
            Ok(event) => {
                if router.cast(wrap(event)).is_err() {
                    break;
                }
            }
        }
    }
}
