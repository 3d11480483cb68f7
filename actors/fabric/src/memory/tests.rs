use std::time::Duration;

use cluster_messages::{ActorPath, Epoch, ErrorKind, Header, RequestId, Role, TraceContext};

use super::*;
use crate::{StreamProtocol, SystemClock, conformance};

struct Count;

impl StreamProtocol for Count {
    const NAME: &'static str = "count";
    type Open = u32;
    type Frame = u32;
}

fn world() -> MemoryFabric {
    MemoryFabric::new(Arc::new(SystemClock::starting_at(0)), Entropy::from_seed(7))
}

fn node(name: &str) -> NodeId {
    NodeId(name.into())
}

fn decode(epoch: u64) -> InstanceRef {
    InstanceRef {
        path: ActorPath::new(Role::Decode, 0),
        epoch: Epoch(epoch),
    }
}

fn header(fabric: &Fabric) -> Header {
    Header {
        request: RequestId(1),
        deadline: fabric.clock.deadline_in(Duration::from_secs(30)),
        trace: TraceContext::default(),
    }
}

#[tokio::test(start_paused = true)]
async fn a_cut_ends_streams_on_both_sides_and_heals() {
    let world = world();
    let (here, there) = (world.node(node("here")), world.node(node("there")));
    let mut incoming = there.streams.serve::<Count>(decode(1), 4).unwrap();
    let serving = tokio::spawn(async move {
        let request = incoming.next().await.unwrap();
        let mut sink = request.respond.accept(4);
        sink.send(request.open).await.unwrap();
        sink.stopped().await;
        incoming
    });
    let mut stream = here.streams.open::<Count>(decode(1), header(&here), 5).await.unwrap();
    assert_eq!(stream.next().await, Some(Ok(5)));
    world.faults().cut(&node("there"), &node("here"));
    assert_eq!(stream.next().await.unwrap().unwrap_err().kind, ErrorKind::Lost);
    assert_eq!(stream.next().await, None, "one end only");
    let _incoming = serving.await.unwrap();

    let refused = here
        .streams
        .open::<Count>(decode(1), header(&here), 5)
        .await
        .unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Unavailable);
    world.faults().heal(&node("here"), &node("there"));
    let opening = here.streams.open::<Count>(decode(1), header(&here), 5);
    assert!(
        futures::poll!(std::pin::pin!(opening)).is_pending(),
        "it waits at the door"
    );
}

/// Two nodes of a fresh world.
fn pair(world: &MemoryFabric) -> [Fabric; 2] {
    ["here", "there"].map(|name| world.node(node(name)))
}

#[tokio::test(start_paused = true)]
async fn discovery_conforms() {
    conformance::discovery(async || pair(&world()).map(|fabric| fabric.discovery)).await;
}

#[tokio::test(start_paused = true)]
async fn documents_conform() {
    conformance::documents(async || pair(&world()).map(|fabric| fabric.documents)).await;
}

#[tokio::test(start_paused = true)]
async fn messaging_conforms() {
    conformance::messaging(async || pair(&world()).map(|fabric| fabric.messaging)).await;
}

#[tokio::test(start_paused = true)]
async fn messaging_conforms_when_messages_take_their_time() {
    let make = async || {
        let world = world();
        // All equally long: the order is promised, so this world keeps it.
        let delay = Duration::from_millis(3);
        world.faults().set_message_faults(MessageFaults {
            delay: delay..=delay,
            ..MessageFaults::default()
        });
        pair(&world).map(|fabric| fabric.messaging)
    };
    conformance::messaging(make).await;
}

fn stream_members(world: &MemoryFabric, [asking, serving]: [&str; 2]) -> conformance::StreamMembers {
    conformance::StreamMembers {
        clock: world.clock.clone(),
        asking: world.node(node(asking)).streams,
        serving: world.node(node(serving)).streams,
    }
}

#[tokio::test(start_paused = true)]
async fn streams_of_values_conform() {
    conformance::streams(async || stream_members(&world(), ["here", "there"])).await;
    conformance::streams(async || stream_members(&world(), ["here", "here"])).await;
}

#[tokio::test(start_paused = true)]
async fn streams_of_bytes_conform() {
    conformance::streams(async || stream_members(&world().encoding(), ["here", "there"])).await;
}
