//! What one frame costs on a stream inside the process. Prints nanoseconds; run with `cargo bench -p cluster-fabric`.
//!
//! Sketch: a frame is one box and one place in a bounded tokio channel, so send and next should stay near 100 ns each.
//! Measured on two busy Zen 5 cores (load 7): send 130, next 193, hop on one thread 270, on two 739 (the wake-up of the other
//! thread), open and end 3223; about 60 ns of processor time for a send.
#![expect(clippy::print_stdout, reason = "a bench prints its figures")]

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use cluster_fabric::{Clock, Entropy, Fabric, Incoming, MemoryFabric, Sink, Stream, StreamProtocol, SystemClock};
use cluster_messages::{
    ActorPath, Epoch, GenerateFrame, Header, InstanceRef, NodeId, RequestId, Role, TokenOut, TraceContext,
};

struct Tokens;

impl StreamProtocol for Tokens {
    const NAME: &'static str = "tokens";
    type Open = u32;
    type Frame = GenerateFrame;
}

const FRAMES: u32 = 1_000_000;
const CAPACITY: usize = 64;

fn frame(id: u32) -> GenerateFrame {
    GenerateFrame::Tokens(vec![TokenOut { id, logprobs: None }])
}

fn instance() -> InstanceRef {
    InstanceRef {
        path: ActorPath::new(Role::Decode, 0),
        epoch: Epoch(1),
    }
}

/// An accepted stream from node `a` to the node `asking`.
async fn connect(world: &MemoryFabric, asking: &str) -> (Stream<GenerateFrame>, Sink<GenerateFrame>) {
    let serving = world.node(NodeId("a".into()));
    let asking = world.node(NodeId(asking.into()));
    let incoming = serving.streams.serve::<Tokens>(instance(), 4);
    open(&asking, &mut incoming.expect("nobody else serves")).await
}

async fn open(asking: &Fabric, incoming: &mut Incoming<Tokens>) -> (Stream<GenerateFrame>, Sink<GenerateFrame>) {
    let header = Header {
        request: RequestId(1),
        deadline: asking.clock.deadline_in(Duration::from_secs(600)),
        trace: TraceContext::default(),
    };
    let opening = asking.streams.open::<Tokens>(instance(), header, 0);
    let accepting = async { incoming.next().await.expect("it was opened").respond.accept(CAPACITY) };
    let (stream, sink) = tokio::join!(opening, accepting);
    (stream.expect("it was accepted"), sink)
}

/// Nanoseconds of one `send` into a stream with room, and of one `next` from it.
async fn both_ends_alone(world: &MemoryFabric) -> (f64, f64) {
    let (mut stream, mut sink) = connect(world, "b").await;
    let (mut sending, mut reading) = (Duration::ZERO, Duration::ZERO);
    let rounds = FRAMES / CAPACITY as u32;
    for _ in 0..rounds {
        let start = Instant::now();
        for id in 0..CAPACITY as u32 {
            sink.send(frame(id)).await.expect("the reader is there");
        }
        let sent = Instant::now();
        for _ in 0..CAPACITY {
            stream.next().await.expect("a frame").expect("no error");
        }
        sending += sent - start;
        reading += sent.elapsed();
    }
    let frames = f64::from(rounds) * CAPACITY as f64;
    (sending.as_nanos() as f64 / frames, reading.as_nanos() as f64 / frames)
}

/// Nanoseconds a frame when a sender and a reader run side by side.
async fn side_by_side(world: &MemoryFabric, asking: &str) -> f64 {
    let (mut stream, mut sink) = connect(world, asking).await;
    let start = Instant::now();
    let sending = tokio::spawn(async move {
        for id in 0..FRAMES {
            sink.send(frame(id)).await.expect("the reader is there");
        }
        sink.finish(Ok(()));
    });
    let mut read = 0;
    while let Some(frame) = stream.next().await {
        frame.expect("no error");
        read += 1;
    }
    let elapsed = start.elapsed();
    sending.await.expect("no panic");
    assert_eq!(read, FRAMES);
    elapsed.as_nanos() as f64 / f64::from(FRAMES)
}

/// Nanoseconds to open, accept, end and drop a stream.
async fn open_and_end(world: &MemoryFabric) -> f64 {
    const STREAMS: u32 = 100_000;
    let [serving, asking] = ["a", "b"].map(|name| world.node(NodeId(name.into())));
    let mut incoming = serving
        .streams
        .serve::<Tokens>(instance(), 4)
        .expect("nobody else serves");
    let start = Instant::now();
    for _ in 0..STREAMS {
        let (mut stream, sink) = open(&asking, &mut incoming).await;
        sink.finish(Ok(()));
        assert!(stream.next().await.is_none());
    }
    start.elapsed().as_nanos() as f64 / f64::from(STREAMS)
}

fn measure(name: &str, world: &MemoryFabric, runtime: &tokio::runtime::Runtime) {
    let (send, next) = runtime.block_on(both_ends_alone(world));
    let hop = runtime.block_on(side_by_side(world, "b"));
    let local = runtime.block_on(side_by_side(world, "a"));
    let open = runtime.block_on(open_and_end(world));
    println!(
        "{name:<32} send {send:6.0}  next {next:6.0}  hop {hop:6.0}  hop on one node {local:6.0}  open+end {open:7.0}"
    );
}

fn main() {
    let one = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    let two = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .expect("a runtime");
    let clock: Arc<dyn Clock> = SystemClock::shared();
    let world = || MemoryFabric::new(clock.clone(), Entropy::from_seed(1));
    println!("nanoseconds per frame of one token, room for {CAPACITY} frames");
    measure("values, one thread", &world(), &one);
    measure("bytes, one thread", &world().encoding(), &one);
    measure("values, two threads", &world(), &two);
}
