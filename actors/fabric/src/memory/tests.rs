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

#[tokio::test(start_paused = true)]
async fn calls_conform() {
    conformance::directory(async || {
        let fabrics = pair(&world());
        conformance::DirectoryMembers {
            clock: fabrics[0].clock.clone(),
            directories: fabrics.map(|fabric| fabric.directory),
        }
    })
    .await;
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

#[tokio::test(start_paused = true)]
async fn a_lost_lease_is_noticed_and_another_life_registers() {
    let world = world();
    let fabric = world.node(node("here"));
    let registration = |epoch| cluster_messages::Registration {
        instance: decode(epoch),
        node: node("here"),
        generation: 1,
        model: cluster_messages::Fingerprint(1),
        layout: cluster_messages::Fingerprint(1),
        capacity: cluster_messages::Capacity::default(),
        folds: Vec::new(),
        needs: Vec::new(),
        addresses: Vec::new(),
    };
    let ttl = Duration::from_secs(10);
    let lease = fabric.discovery.register(registration(1), ttl).await.unwrap();
    let mut changes = fabric.discovery.watch().await.unwrap();
    changes.next().await.unwrap();
    let lost = lease.lost();
    world.faults().lose_lease(decode(1));
    lost.await;
    assert_eq!(changes.next().await, Some(crate::Change::Gone(decode(1))));
    let epoch = fabric.discovery.next_epoch(decode(1).path).await.unwrap();
    let _again = fabric.discovery.register(registration(epoch.0), ttl).await.unwrap();
    assert_eq!(changes.next().await, Some(crate::Change::Put(registration(epoch.0))));
}

/// The numbers that arrive of 200 sent under `faults`, and the sender's and the receiver's node.
async fn arrivals(faults: MessageFaults, seed: u64, [from, to]: [&str; 2]) -> Vec<u8> {
    let world = MemoryFabric::new(Arc::new(SystemClock::starting_at(0)), Entropy::from_seed(seed));
    world.faults().set_message_faults(faults);
    let mut subscription = world.node(node(to)).messaging.subscribe("numbers", 1000).await.unwrap();
    let sender = world.node(node(from)).messaging;
    for number in 0..200 {
        sender
            .publish("numbers", crate::Message::new(vec![number]))
            .await
            .unwrap();
    }
    world.clock.sleep(Duration::from_secs(1)).await;
    std::iter::from_fn(|| subscription.try_next())
        .map(|delivery| delivery.message.payload[0])
        .collect()
}

#[tokio::test(start_paused = true)]
async fn message_faults_come_from_the_seed() {
    let faults = MessageFaults {
        lose: 0.2,
        repeat: 0.2,
        delay: Duration::ZERO..=Duration::from_millis(50),
    };
    let first = arrivals(faults.clone(), 1, ["here", "there"]).await;
    assert_eq!(
        first,
        arrivals(faults.clone(), 1, ["here", "there"]).await,
        "one seed, one run"
    );
    assert_ne!(first, arrivals(faults.clone(), 2, ["here", "there"]).await);
    let mut distinct = first.clone();
    distinct.sort_unstable();
    assert_ne!(first, distinct, "messages overtake each other");
    distinct.dedup();
    assert!(
        (140..180).contains(&distinct.len()),
        "{} of 200 at a loss of 0.2",
        distinct.len()
    );
    assert!(first.len() > distinct.len() + 10, "some arrive twice");
    let local = arrivals(faults, 1, ["here", "here"]).await;
    assert!(local.into_iter().eq(0..200), "a node does not lose messages to itself");
}

#[tokio::test(start_paused = true)]
async fn a_cut_stops_messages_too() {
    let world = world();
    let [here, there] = pair(&world);
    let mut subscription = there.messaging.subscribe("ask", 8).await.unwrap();
    world.faults().cut(&here.node, &there.node);
    here.messaging.publish("ask", crate::Message::new("cut")).await.unwrap();
    let asked = here
        .messaging
        .request("ask", crate::Message::default(), Duration::from_secs(1))
        .await;
    assert_eq!(asked, Err(crate::MessagingError::NoResponders("ask".into())));
    world.faults().heal(&here.node, &there.node);
    here.messaging
        .publish("ask", crate::Message::new("healed"))
        .await
        .unwrap();
    assert_eq!(subscription.next().await.unwrap().message.payload, "healed");
}

#[tokio::test(start_paused = true)]
async fn a_cut_ends_the_wait_for_a_decision() {
    let world = world();
    let [here, there] = pair(&world);
    let mut incoming = there.streams.serve::<Count>(decode(1), 4).unwrap();
    let opening = here.streams.open::<Count>(decode(1), header(&here), 5);
    let cutting = async {
        let request = incoming.next().await.unwrap();
        world.faults().cut(&here.node, &there.node);
        request
    };
    let (opened, mut request) = tokio::join!(opening, cutting);
    assert_eq!(opened.unwrap_err().kind, ErrorKind::Lost);
    request.respond.abandoned().await;
}

#[test]
fn a_node_that_comes_again_draws_other_numbers() {
    let world = world();
    let draw = || world.node(node("here")).entropy.request_id();
    assert_ne!(draw(), draw());
}

#[tokio::test(start_paused = true)]
async fn a_cut_does_not_wait_for_what_is_on_its_way() {
    let world = world();
    let [here, there] = pair(&world);
    let mut incoming = there.streams.serve::<Count>(decode(1), 4).unwrap();
    let opening = here.streams.open::<Count>(decode(1), header(&here), 5);
    let accepting = async { incoming.next().await.unwrap().respond.accept(8) };
    let (opened, mut sink) = tokio::join!(opening, accepting);
    let mut stream = opened.unwrap();
    for number in 0..3 {
        sink.send(number).await.unwrap();
    }
    world.faults().cut(&here.node, &there.node);
    assert_eq!(stream.next().await.unwrap().unwrap_err().kind, ErrorKind::Lost);
    assert_eq!(sink.send(3).await, Err(crate::Closed));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_was_taken_back_is_passed_over() {
    let world = world();
    let here = world.node(node("here"));
    let mut incoming = here.streams.serve::<Count>(decode(1), 4).unwrap();
    for taken_back in [1, 2] {
        let opening = here.streams.open::<Count>(decode(1), header(&here), taken_back);
        assert!(futures::poll!(std::pin::pin!(opening)).is_pending());
    }
    assert_eq!(incoming.queue_len(), 2);
    let mut opening = std::pin::pin!(here.streams.open::<Count>(decode(1), header(&here), 3));
    assert!(futures::poll!(&mut opening).is_pending());
    assert_eq!(incoming.next().await.unwrap().open, 3);
}
