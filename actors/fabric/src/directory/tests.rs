use std::time::Duration;

use cluster_messages::{ErrorKind, RequestError, Role};
use ractor::{Actor, ActorProcessingErr};

use super::*;
use crate::{CallContext, Entropy, Fabric, MemoryFabric, ReplyTo, SystemClock, messaging::PAYLOAD_MAX};

crate::protocol! {
    /// What the test actor is told.
    enum CounterMessage = "counter" {
        /// Adds, and tells the sum.
        Add(u64) -> u64,
        /// As many bytes as asked for.
        Repeat(u32) -> Vec<u8>,
        /// Anything but an answer.
        Misbehave(String) -> (),
    }
    local {
        /// Answers the parked call.
        Unpark,
    }
}

struct Counter;

#[derive(Default)]
struct State {
    sum: u64,
    parked: Option<ReplyTo<()>>,
    kept: Vec<ReplyTo<()>>,
}

impl Actor for Counter {
    type Msg = CounterMessage;
    type State = State;
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<CounterMessage>, (): ()) -> Result<State, ActorProcessingErr> {
        Ok(State::default())
    }

    async fn handle(
        &self,
        myself: ActorRef<CounterMessage>,
        message: CounterMessage,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            CounterMessage::Add(call) => {
                state.sum += call.request;
                call.reply.send(state.sum);
            }
            CounterMessage::Repeat(call) => call.reply.send(vec![7; call.request as usize]),
            CounterMessage::Misbehave(call) => match call.request.as_str() {
                "drop" => drop(call.reply),
                "fail" => call.reply.fail(RequestError::new(ErrorKind::Overloaded, "no room")),
                "park" => {
                    state.parked = Some(call.reply);
                    myself.send_after(Duration::from_millis(50), || CounterMessage::Unpark);
                }
                "sleep" => state.parked = Some(call.reply),
                "keep" => state.kept.push(call.reply),
                _ => panic!("told to"),
            },
            CounterMessage::Unpark => {
                if let Some(reply) = state.parked.take() {
                    reply.send(());
                }
            }
        }
        Ok(())
    }
}

fn counter(epoch: u64) -> InstanceRef {
    InstanceRef {
        path: ActorPath::new(Role::Router, 3),
        epoch: Epoch(epoch),
    }
}

/// A counter on a node with a dotted name, its own address and that of a peer.
struct Pair {
    world: MemoryFabric,
    home: Fabric,
    peer: Fabric,
    actor: ActorRef<CounterMessage>,
    _listening: Listening,
}

impl Pair {
    async fn start() -> Self {
        let world = MemoryFabric::new(Arc::new(SystemClock::starting_at(0)), Entropy::from_seed(1));
        let home = world.node(NodeId("rack.1".into()));
        let peer = world.node(NodeId("rack.2".into()));
        let (actor, _) = Actor::spawn(None, Counter, ()).await.unwrap();
        let listening = home.directory.listen().await.unwrap();
        Self {
            world,
            home,
            peer,
            actor,
            _listening: listening,
        }
    }

    /// The address as the home node and as a peer see it.
    fn addrs(&self, epoch: u64) -> [Addr<CounterMessage>; 2] {
        [&self.home, &self.peer].map(|fabric| fabric.directory.addr(counter(epoch), &self.home.node))
    }

    fn context(&self) -> CallContext {
        CallContext::until(self.home.clock.deadline_in(Duration::from_secs(2)))
    }

    async fn misbehave(&self, addr: &Addr<CounterMessage>, how: &str) -> Result<(), CallError> {
        addr.call(how.to_owned(), self.context()).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_means_the_same_here_and_from_afar() {
    let pair = Pair::start().await;
    let _registered = pair.home.directory.register(counter(1), pair.actor.clone()).unwrap();
    let [local, remote] = pair.addrs(1);
    assert!(local.is_local() && !remote.is_local());
    assert_eq!(local.call(5u64, pair.context()).await, Ok(5));
    assert_eq!(remote.call(6u64, pair.context()).await, Ok(11));
    local.cast(1u64, pair.context()).await.unwrap();
    remote.cast(1u64, pair.context()).await.unwrap();
    assert_eq!(remote.call(0u64, pair.context()).await, Ok(13));
    for addr in [local, remote] {
        assert_eq!(pair.misbehave(&addr, "drop").await, Err(CallError::Dropped));
        let failed = pair.misbehave(&addr, "fail").await.unwrap_err();
        assert_eq!(RequestError::from(failed).kind, ErrorKind::Overloaded);
        assert_eq!(
            pair.misbehave(&addr, "park").await,
            Ok(()),
            "answered after the handler returned"
        );
        assert_eq!(pair.misbehave(&addr, "sleep").await, Err(CallError::Deadline));
    }
    pair.home.clock.sleep(Duration::from_millis(1)).await;
    assert_eq!(pair.home.directory.remote_calls(), 0, "all places are free again");
}

#[tokio::test(start_paused = true)]
async fn remote_calls_are_bounded() {
    let pair = Pair::start().await;
    let _registered = pair.home.directory.register(counter(1), pair.actor.clone()).unwrap();
    let [_, remote] = pair.addrs(1);
    let asked = (0..REMOTE_CALLS_MAX + 1).map(|_| pair.misbehave(&remote, "keep"));
    let answers = futures::future::join_all(asked).await;
    let overloaded = answers
        .iter()
        .filter(|answer| matches!(answer, Err(CallError::Overloaded(_))));
    assert_eq!(overloaded.count(), 1);
    let waited = answers.iter().filter(|answer| **answer == Err(CallError::Deadline));
    assert_eq!(waited.count(), REMOTE_CALLS_MAX as usize);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_reached_is_told_at_once() {
    let pair = Pair::start().await;
    let before = pair.home.clock.now();
    let unreachable =
        |result: Result<u64, CallError>| assert!(matches!(result, Err(CallError::Unreachable(_))), "{result:?}");
    for addr in pair.addrs(1) {
        unreachable(addr.call(1u64, pair.context()).await);
    }
    let nowhere = pair
        .peer
        .directory
        .addr::<CounterMessage>(counter(1), &NodeId("rack.3".into()));
    unreachable(nowhere.call(1u64, pair.context()).await);

    let registered = pair.home.directory.register(counter(2), pair.actor.clone()).unwrap();
    for epoch in [1, 3] {
        for addr in pair.addrs(epoch) {
            let stale = CallError::Stale {
                instance: counter(epoch),
                known: Epoch(2),
            };
            assert_eq!(addr.call(1u64, pair.context()).await, Err(stale));
        }
    }
    drop(registered);
    for addr in pair.addrs(2) {
        unreachable(addr.call(1u64, pair.context()).await);
    }
    pair.world.faults().cut(&pair.home.node, &pair.peer.node);
    unreachable(pair.addrs(2)[1].call(1u64, pair.context()).await);
    assert_eq!(pair.home.clock.now(), before, "nothing waited");
}

#[tokio::test(start_paused = true)]
async fn an_actor_that_dies_over_a_call_drops_it() {
    for which in [0, 1] {
        let pair = Pair::start().await;
        let _registered = pair.home.directory.register(counter(1), pair.actor.clone()).unwrap();
        let addr = &pair.addrs(1)[which];
        assert_eq!(pair.misbehave(addr, "panic").await, Err(CallError::Dropped));
        pair.actor.wait(None).await.unwrap();
        let after = pair.misbehave(addr, "drop").await;
        assert!(matches!(after, Err(CallError::Unreachable(_))), "{after:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn bodies_that_no_message_holds_are_refused_both_ways() {
    let pair = Pair::start().await;
    let _registered = pair.home.directory.register(counter(1), pair.actor.clone()).unwrap();
    let [local, remote] = pair.addrs(1);
    let size = PAYLOAD_MAX as u32 + 1;
    assert_eq!(
        local.call(size, pair.context()).await.map(|bytes| bytes.len()),
        Ok(PAYLOAD_MAX + 1)
    );
    let large_answer = remote.call(size, pair.context()).await;
    assert!(matches!(large_answer, Err(CallError::Codec(_))), "{large_answer:?}");
    let large_request = remote.call("x".repeat(PAYLOAD_MAX + 1), pair.context()).await;
    assert!(matches!(large_request, Err(CallError::Codec(_))), "{large_request:?}");
}

crate::protocol! {
    /// Another actor's mailbox with an equal call.
    #[expect(dead_code, reason = "no actor has it")]
    enum OtherMessage = "other" {
        /// Takes a number as well.
        Add(u64) -> u64,
    }
}

#[tokio::test(start_paused = true)]
async fn a_life_is_registered_once_and_speaks_one_protocol() {
    let pair = Pair::start().await;
    let directory = &pair.home.directory;
    let registered = directory.register(counter(2), pair.actor.clone()).unwrap();
    for epoch in [1, 2] {
        let again = directory.register(counter(epoch), pair.actor.clone()).unwrap_err();
        assert!(matches!(again, CallError::Stale { known: Epoch(2), .. }), "{again:?}");
    }
    for fabric in [&pair.home, &pair.peer] {
        let addr = fabric.directory.addr::<OtherMessage>(counter(2), &pair.home.node);
        let answer = addr.call(1u64, pair.context()).await;
        assert!(matches!(answer, Err(CallError::Codec(_))), "{answer:?}");
    }
    let _later = directory.register(counter(3), pair.actor.clone()).unwrap();
    drop(registered);
    let [local, _] = pair.addrs(3);
    assert_eq!(
        local.call(1u64, pair.context()).await,
        Ok(1),
        "the end of an old life leaves the new one alone"
    );
}
