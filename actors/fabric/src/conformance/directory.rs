//! The suite of calls between nodes: a [`Directory`] over any message bus.

use std::{sync::Arc, time::Duration};

use cluster_messages::{ActorPath, Epoch, ErrorKind, InstanceRef, NodeId, RequestError, Role, TraceContext};
use ractor::{Actor, ActorProcessingErr, ActorRef};

use super::soon;
use crate::{Addr, CallContext, CallError, Clock, Directory, Listening, Registered, ReplyTo, messaging::PAYLOAD_MAX};

/// Two nodes of one cluster.
pub struct DirectoryMembers {
    /// The clock both read.
    pub clock: Arc<dyn Clock>,
    /// Their directories. Nobody listens yet.
    pub directories: [Directory; 2],
}

/// Runs all checks of calls between nodes. `make` gives two nodes of a fresh world.
pub async fn directory(make: impl AsyncFn() -> DirectoryMembers) {
    nodes_call_each_other(Nodes::start(make().await).await).await;
    a_call_arrives_with_its_trace_and_what_time_is_left(Nodes::start(make().await).await).await;
    casts_arrive_before_a_later_call(Nodes::start(make().await).await).await;
    every_end_of_a_call_is_told(Nodes::start(make().await).await).await;
    other_lives_are_stale(Nodes::start(make().await).await).await;
    who_is_not_there_is_told_at_once(Nodes::start(make().await).await).await;
    what_no_message_holds_is_refused(Nodes::start(make().await).await).await;
    many_calls_do_not_mix(Nodes::start(make().await).await).await;
}

crate::protocol! {
    /// What the actor of the checks is told.
    enum ProbeMessage = "probe" {
        /// Adds, and tells the sum.
        Add(u64) -> u64,
        /// As many bytes as asked for.
        Repeat(u32) -> Vec<u8>,
        /// The traceparent and the milliseconds left.
        Context(()) -> (String, u64),
        /// Ends the call in the way named.
        End(String) -> (),
    }
}

struct Probe(Arc<dyn Clock>);

#[derive(Default)]
struct State {
    sum: u64,
    kept: Vec<ReplyTo<()>>,
}

impl Actor for Probe {
    type Msg = ProbeMessage;
    type State = State;
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<ProbeMessage>, (): ()) -> Result<State, ActorProcessingErr> {
        Ok(State::default())
    }

    async fn handle(
        &self,
        _: ActorRef<ProbeMessage>,
        message: ProbeMessage,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            ProbeMessage::Add(call) => {
                state.sum += call.request;
                call.reply.send(state.sum);
            }
            ProbeMessage::Repeat(call) => call.reply.send(vec![7; call.request as usize]),
            ProbeMessage::Context(call) => {
                let left = self.0.remaining(call.context.deadline).as_millis();
                let left = u64::try_from(left).unwrap_or(u64::MAX);
                call.reply.send((call.context.trace.traceparent, left));
            }
            ProbeMessage::End(call) => match call.request.as_str() {
                "refuse" => call.reply.fail(RequestError::new(ErrorKind::Overloaded, "no room")),
                "keep" => state.kept.push(call.reply),
                _ => drop(call.reply),
            },
        }
        Ok(())
    }
}

/// Two nodes with one actor each, of the same path; the first node's is in its second life.
struct Nodes {
    clock: Arc<dyn Clock>,
    directories: [Directory; 2],
    actors: [ActorRef<ProbeMessage>; 2],
    registered: [Option<Registered>; 2],
    listening: [Option<Listening>; 2],
}

const EPOCHS: [u64; 2] = [2, 1];

fn probe(epoch: u64) -> InstanceRef {
    InstanceRef {
        path: ActorPath::new(Role::Router, 3),
        epoch: Epoch(epoch),
    }
}

impl Nodes {
    async fn start(members: DirectoryMembers) -> Self {
        let DirectoryMembers { clock, directories } = members;
        let spawn = async || Actor::spawn(None, Probe(clock.clone()), ()).await;
        let actors = [spawn().await, spawn().await].map(|started| started.expect("it starts").0);
        let register = |node: usize| directories[node].register(probe(EPOCHS[node]), actors[node].clone());
        let registered = [register(0), register(1)].map(|done| Some(done.expect("a fresh directory")));
        let listen = async |node: usize| soon(directories[node].listen()).await.expect("the bus is there");
        let listening = [Some(listen(0).await), Some(listen(1).await)];
        Self {
            clock,
            directories,
            actors,
            registered,
            listening,
        }
    }

    /// The address of life `epoch` of the first node's actor, as the second node has it.
    fn first(&self, epoch: u64) -> Addr<ProbeMessage> {
        self.directories[1].addr(probe(epoch), self.directories[0].node())
    }

    /// The address of the second node's actor, as the first node has it.
    fn second(&self) -> Addr<ProbeMessage> {
        self.directories[0].addr(probe(EPOCHS[1]), self.directories[1].node())
    }

    /// Far beyond what a check may take.
    fn forever(&self) -> CallContext {
        CallContext::until(self.clock.deadline_in(Duration::from_secs(600)))
    }

    async fn end(&self, how: &str, context: CallContext) -> Result<(), CallError> {
        soon(self.first(2).call(how.to_owned(), context)).await
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        self.actors.iter().for_each(|actor| actor.stop(None));
    }
}

async fn nodes_call_each_other(nodes: Nodes) {
    let (first, second) = (nodes.first(2), nodes.second());
    assert!(!first.is_local() && !second.is_local());
    assert_eq!(soon(first.call(5u64, nodes.forever())).await, Ok(5));
    assert_eq!(soon(second.call(7u64, nodes.forever())).await, Ok(7));
    assert_eq!(soon(first.call(1u64, nodes.forever())).await, Ok(6));
}

async fn a_call_arrives_with_its_trace_and_what_time_is_left(nodes: Nodes) {
    let traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let context = CallContext {
        trace: TraceContext {
            traceparent: traceparent.into(),
        },
        ..nodes.forever()
    };
    let (arrived, left_ms) = soon(nodes.first(2).call((), context)).await.expect("an answer");
    assert_eq!(arrived, traceparent);
    assert!(
        (500_000..=600_000).contains(&left_ms),
        "{left_ms} ms of 600 s were left"
    );
}

async fn casts_arrive_before_a_later_call(nodes: Nodes) {
    let first = nodes.first(2);
    for number in 1..=100u64 {
        soon(first.cast(number, nodes.forever())).await.expect("it was sent");
    }
    assert_eq!(soon(first.call(0u64, nodes.forever())).await, Ok(5050));
}

async fn every_end_of_a_call_is_told(nodes: Nodes) {
    let refused = CallError::App(RequestError::new(ErrorKind::Overloaded, "no room"));
    assert_eq!(nodes.end("refuse", nodes.forever()).await, Err(refused));
    assert_eq!(nodes.end("drop", nodes.forever()).await, Err(CallError::Dropped));
    let shortly = CallContext::until(nodes.clock.deadline_in(Duration::from_millis(50)));
    assert_eq!(nodes.end("keep", shortly).await, Err(CallError::Deadline));
}

async fn other_lives_are_stale(nodes: Nodes) {
    for epoch in [1, 3] {
        let stale = CallError::Stale {
            instance: probe(epoch),
            known: Epoch(2),
        };
        assert_eq!(soon(nodes.first(epoch).call(5u64, nodes.forever())).await, Err(stale));
    }
    assert_eq!(
        soon(nodes.first(2).call(0u64, nodes.forever())).await,
        Ok(0),
        "none of them reached the actor"
    );
}

async fn who_is_not_there_is_told_at_once(mut nodes: Nodes) {
    let unreachable =
        |answer: Result<u64, CallError>| assert!(matches!(answer, Err(CallError::Unreachable(_))), "{answer:?}");
    let [first, second] = &nodes.directories;
    let unknown = InstanceRef {
        path: ActorPath::new(Role::Router, 4),
        epoch: Epoch(1),
    };
    let unknown = second.addr::<ProbeMessage>(unknown, first.node());
    unreachable(soon(unknown.call(1u64, nodes.forever())).await);
    let nowhere = second.addr::<ProbeMessage>(probe(2), &NodeId("nowhere".into()));
    unreachable(soon(nowhere.call(1u64, nodes.forever())).await);

    nodes.actors[0].stop_and_wait(None, None).await.expect("it stops");
    unreachable(soon(nodes.first(2).call(1u64, nodes.forever())).await);

    let first = nodes.first(2);
    nodes.registered[0].take();
    unreachable(soon(first.call(1u64, nodes.forever())).await);
    nodes.listening[0].take();
    // An end of a subscription takes a moment to get around; until then a call is lost.
    let told = soon(async {
        loop {
            let shortly = CallContext::until(nodes.clock.deadline_in(Duration::from_millis(50)));
            match first.call(1u64, shortly).await {
                Err(CallError::Deadline) => {}
                told => return told,
            }
        }
    });
    unreachable(told.await);
}

async fn what_no_message_holds_is_refused(nodes: Nodes) {
    let first = nodes.first(2);
    let large_answer = soon(first.call(PAYLOAD_MAX as u32 + 1, nodes.forever())).await;
    assert!(matches!(large_answer, Err(CallError::Codec(_))), "{large_answer:?}");
    let large_request = soon(first.call("x".repeat(PAYLOAD_MAX + 1), nodes.forever())).await;
    assert!(matches!(large_request, Err(CallError::Codec(_))), "{large_request:?}");
}

async fn many_calls_do_not_mix(nodes: Nodes) {
    let first = nodes.first(2);
    let asked = (0..500u32).map(|size| {
        let (first, context) = (&first, nodes.forever());
        async move { (size, first.call(size, context).await) }
    });
    for (size, answer) in soon(futures::future::join_all(asked)).await {
        assert_eq!(answer.map(|bytes| bytes.len()), Ok(size as usize));
    }
}
