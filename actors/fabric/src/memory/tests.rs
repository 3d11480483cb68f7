use std::time::Duration;

use cluster_messages::{ActorPath, Epoch, ErrorKind, Header, RequestId, Role, TraceContext};

use super::*;
use crate::{StreamProtocol, SystemClock};

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
