//! The router role: keeps a view of who serves, how busy they are and what they hold, and answers who should serve a
//! request. The decision itself is a pure function of that view (`cluster-routing`); this actor feeds it and traces it.

use async_trait::async_trait;
use cluster_fabric::{Call, Change, Registered as Reachable, Subscription, Wire, protocol, wire};
use cluster_messages::{
    ActorPath, Candidate, Deadline, InstanceRef, KvEvent, LoadReport, RequestError, Route, RouteDecision,
};
use cluster_routing::{Applied, Encoders, Index, Policy, PolicyState, Refusal, View, choose, choose_encoders};
use cluster_telemetry::{
    names::{attributes, spans},
    set_parent,
};
use futures::{Stream, StreamExt, stream};
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef};
use serde::{Deserialize, Serialize};
use tokio::{sync::oneshot, task::JoinSet};
use tracing::{Span, field::Empty};

use crate::{
    failure,
    host::{Host, Registered},
    subjects,
    supervisor::{Life, RoleSpec, spawn_linked},
};

/// Events that may wait for the router; when more do, the newest are lost, which the sequence numbers show.
const EVENTS_MAX: usize = 65_536;
/// Events in one message of the mailbox: a request never waits for more of them than this.
const BATCH_MAX: usize = 256;

/// Asks for a decision. The ticket is the asker's name for it, so that the asker can give it back whatever becomes of the
/// answer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Choose {
    pub(crate) route: Route,
    pub(crate) ticket: u64,
}

/// Asks who encodes a route's media, and nothing else: those chosen before did not.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct ChooseEncoders {
    pub(crate) route: Route,
    pub(crate) ticket: u64,
}

/// The work of a decision is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Release {
    pub(crate) ticket: u64,
    pub(crate) part: Part,
}

/// Which part of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Part {
    /// The prompt is computed; the answer is not.
    Prefill,
    /// The media are encoded.
    Encoders,
    /// Decode and prefill will be chosen again, when the media are encoded.
    Workers,
    /// All.
    All,
}

protocol! {
    /// What a router is asked and told.
    pub(crate) enum RouterMessage = "router" {
        /// Who serves this request?
        Choose(Choose) -> RouteDecision,
        /// Who encodes its media? As many as there are media, or none when nobody can.
        ChooseEncoders(ChooseEncoders) -> Vec<InstanceRef>,
        /// It is over.
        Release(Release) -> (),
    }
    local {
        /// Somebody came or went.
        Changed(Batch<Change>),
        /// Somebody's blocks changed.
        Blocks(Batch<KvEvent>),
        /// Somebody told how busy it is.
        Load(Batch<LoadReport>),
    }
}

/// What one feed had to say. Its feed goes on when this is dropped: the mailbox holds one batch of each.
pub(crate) struct Batch<T> {
    events: Vec<T>,
    _taken: oneshot::Sender<()>,
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
        let (mut view, mut index) = (View::new(), Index::new());
        // Who asks us must not hear that nobody is there only because we have not looked yet.
        let first = changes.next().await.ok_or("discovery ended before it began")?;
        take_in(host, &mut view, &mut index, first).await;
        let mut feeds = JoinSet::new();
        feeds.spawn(feed(events_of(kv), myself.clone(), RouterMessage::Blocks));
        feeds.spawn(feed(events_of(load), myself.clone(), RouterMessage::Load));
        let changes = stream::unfold(changes, async |mut changes| Some((changes.next().await?, changes)));
        feeds.spawn(feed(changes, myself.clone(), RouterMessage::Changed));
        let _reachable = host.fabric.directory.register(*instance, myself)?;
        let _registered = host.register(host.registration(*instance)).await?;
        Ok(RouterState {
            policy,
            memory: PolicyState::default(),
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
            RouterMessage::ChooseEncoders(call) => state.answer_encoders(host, self.life.instance, call),
            RouterMessage::Release(call) => state.release(call.request),
            RouterMessage::Load(batch) => {
                for report in &batch.events {
                    state.view.report(report);
                }
            }
            RouterMessage::Blocks(batch) => {
                for event in &batch.events {
                    if matches!(state.index.apply(event), Applied::Gap { .. }) {
                        ask_for_snapshot(host, event.instance).await;
                    }
                }
            }
            RouterMessage::Changed(batch) => {
                for change in batch.events {
                    take_in(host, &mut state.view, &mut state.index, change).await;
                }
            }
        }
        Ok(())
    }
}

impl RouterState {
    fn answer(&mut self, host: &Host, instance: InstanceRef, call: Call<Choose, RouteDecision>) {
        let Call {
            request: Choose { route, ticket },
            reply,
            ..
        } = call;
        self.view.expire(Deadline(host.fabric.clock.now()));
        match self.choose_traced(&route, instance) {
            Ok(decision) => {
                self.view.begin(ticket, &route, &decision);
                reply.send(decision);
            }
            Err(error) => reply.fail(error),
        }
    }

    fn answer_encoders(&mut self, host: &Host, instance: InstanceRef, call: Call<ChooseEncoders, Vec<InstanceRef>>) {
        let ChooseEncoders { route, ticket } = call.request;
        self.view.expire(Deadline(host.fabric.clock.now()));
        let span = self.span(&route, instance);
        let Encoders { chosen, candidates } = choose_encoders(&route, &self.view);
        note_candidates(&span, &candidates);
        note_encoders(&span, &chosen);
        self.view.begin_encoding(ticket, &route, &chosen);
        call.reply.send(chosen);
    }

    fn release(&mut self, release: Release) {
        match release.part {
            Part::Prefill => self.view.end_prefill(release.ticket),
            Part::Encoders => self.view.end_encoders(release.ticket),
            Part::Workers => self.view.end_workers(release.ticket),
            Part::All => self.view.end(release.ticket),
        }
    }

    /// Chooses, and leaves everything that was considered in the trace.
    fn choose_traced(&mut self, route: &Route, instance: InstanceRef) -> Result<RouteDecision, RequestError> {
        let span = self.span(route, instance);
        let chosen = choose(route, &self.view, &self.index, self.policy, &mut self.memory);
        let candidates = match &chosen {
            Ok(decision) => &decision.candidates,
            Err(refusal) => &refusal.candidates,
        };
        note_candidates(&span, candidates);
        let chosen = chosen.map_err(|Refusal { error, .. }| error);
        failure::note(&span, &chosen);
        let decision = chosen?;
        span.record(attributes::CHOSEN_DECODE, decision.decode.path.to_string());
        if let Some(prefill) = decision.prefill {
            span.record(attributes::CHOSEN_PREFILL, prefill.path.to_string());
        }
        note_encoders(&span, &decision.encoders);
        Ok(decision)
    }

    fn span(&self, route: &Route, instance: InstanceRef) -> Span {
        let span = tracing::info_span!(
            spans::ROUTER_CHOOSE,
            instance = %instance.path,
            { attributes::POLICY } = self.policy.name(),
            { attributes::CANDIDATES } = Empty,
            { attributes::CHOSEN_DECODE } = Empty,
            { attributes::CHOSEN_PREFILL } = Empty,
            { attributes::CHOSEN_ENCODERS } = Empty,
            { attributes::ERROR_TYPE } = Empty,
        );
        set_parent(&span, &route.header.trace.traceparent);
        span
    }
}

fn note_candidates(span: &Span, candidates: &[Candidate]) {
    let json = serde_json::to_string(candidates).expect("candidates are plain numbers and texts");
    span.record(attributes::CANDIDATES, json);
}

fn note_encoders(span: &Span, encoders: &[InstanceRef]) {
    if !encoders.is_empty() {
        let paths: Vec<_> = encoders.iter().map(|encoder| encoder.path.to_string()).collect();
        span.record(attributes::CHOSEN_ENCODERS, paths.join(","));
    }
}

async fn take_in(host: &Host, view: &mut View, index: &mut Index, change: Change) {
    match change {
        Change::Put(registration) => {
            let instance = registration.instance;
            if view.register(registration) {
                ask_for_snapshot(host, instance).await;
            }
        }
        Change::Gone(instance) => forget(view, index, instance),
        Change::Resync(all) => {
            let living: Vec<_> = all.iter().map(|registration| registration.instance).collect();
            let known: Vec<_> = view.instances().filter(|instance| !living.contains(instance)).collect();
            known.into_iter().for_each(|instance| forget(view, index, instance));
            for registration in all {
                let instance = registration.instance;
                view.register(registration);
                ask_for_snapshot(host, instance).await;
            }
        }
    }
}

fn forget(view: &mut View, index: &mut Index, instance: InstanceRef) {
    view.unregister(instance);
    index.forget(instance);
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

/// What a subscription delivers, understood.
fn events_of<T: Wire>(subscription: Subscription) -> impl Stream<Item = T> + Send {
    stream::unfold(subscription, async |mut subscription| {
        loop {
            let delivery = subscription.next().await?;
            match wire::decode::<T>(&delivery.message.payload) {
                Err(error) => tracing::warn!(subject = delivery.subject, %error, "event not understood"),
                Ok(event) => return Some((event, subscription)),
            }
        }
    })
}

/// Puts what `source` says into the mailbox, everything that is there at once, and more when that was taken. Bursts wait in
/// the source, which is bounded, and not in the mailbox, which is not.
async fn feed<T>(
    source: impl Stream<Item = T> + Send,
    router: ActorRef<RouterMessage>,
    wrap: fn(Batch<T>) -> RouterMessage,
) {
    let mut batches = std::pin::pin!(source.ready_chunks(BATCH_MAX));
    while let Some(events) = batches.next().await {
        let (_taken, taken) = oneshot::channel();
        if router.cast(wrap(Batch { events, _taken })).is_err() {
            break;
        }
        // An error is how it is told: the batch is dropped.
        let _dropped = taken.await;
    }
}

#[cfg(test)]
mod tests;
