//! What a message costs on NATS, and on its twin in memory. Prints one line for each; run a nats-server and then
//! `cargo run --release -p cluster-fabric --features nats --example messaging -- 127.0.0.1:4222`.
//!
//! Sketch: a request over a broker is four trips through a socket and as many wake-ups, near 60 us on one machine; a
//! publish is a copy into a buffer that goes out with many others.
//! Measured on two busy EPYC cores (load 2, nats-server 2.15.1 beside it), three runs: request on one thread p50 130 to
//! 162 us, p99 194 to 256 (memory 2 and 2; the bare client on the same machine 139 to 169 and 202 to 253), 64 in flight
//! 146,000 to 164,000 a second; publish 256 B 780,000 to 970,000 a second (memory 1.7 to 1.8 million), 4 KiB 310,000 to
//! 325,000.
#![expect(clippy::print_stdout, reason = "a bench prints its figures")]

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use cluster_fabric::{Entropy, MemoryFabric, Message, Messaging, Nats, NatsOptions, Subscription, SystemClock};
use cluster_messages::NodeId;
use tokio::{runtime::Builder, task::JoinHandle};

const REQUESTS: usize = 20_000;
const IN_FLIGHT: usize = 64;
const PUBLISHED: usize = 200_000;
const TIMEOUT: Duration = Duration::from_secs(10);

type Members = [Arc<dyn Messaging>; 2];

fn in_memory() -> Members {
    let world = MemoryFabric::new(SystemClock::shared(), Entropy::from_seed(1));
    ["here", "there"].map(|name| world.node(NodeId(name.into())).messaging)
}

async fn connect(server: &str, name: &str) -> Arc<dyn Messaging> {
    let nats = Nats::connect(NatsOptions::new(server, name)).await;
    let nats = nats.expect("an address");
    nats.ready(TIMEOUT).await.expect("a server");
    Arc::new(nats)
}

async fn over_nats(server: &str) -> Members {
    [connect(server, "here").await, connect(server, "there").await]
}

fn answer_all(member: &Arc<dyn Messaging>, mut requests: Subscription) -> JoinHandle<()> {
    let member = member.clone();
    tokio::spawn(async move {
        while let Some(request) = requests.next().await {
            let reply = request.reply.expect("only requests come here");
            let sent = member.publish(&reply, request.message).await;
            sent.expect("the bus is there");
        }
    })
}

async fn ask(member: &Arc<dyn Messaging>, size: usize) -> Duration {
    let start = Instant::now();
    let answer = member.request("ask", Message::new(vec![7; size]), TIMEOUT).await;
    assert_eq!(answer.expect("somebody answers").payload.len(), size);
    start.elapsed()
}

/// Microseconds at the middle and at 99 % of requests made one after the other.
async fn one_by_one(member: &Arc<dyn Messaging>, size: usize) -> [f64; 2] {
    let mut took = Vec::with_capacity(REQUESTS);
    for _ in 0..REQUESTS {
        took.push(ask(member, size).await);
    }
    took.sort_unstable();
    [REQUESTS / 2, REQUESTS * 99 / 100].map(|rank| took[rank].as_secs_f64() * 1e6)
}

/// Requests a second with many in flight.
async fn side_by_side(member: &Arc<dyn Messaging>, size: usize) -> f64 {
    let start = Instant::now();
    let each = REQUESTS / IN_FLIGHT;
    let askers = (0..IN_FLIGHT).map(|_| async {
        for _ in 0..each {
            ask(member, size).await;
        }
    });
    futures::future::join_all(askers).await;
    (each * IN_FLIGHT) as f64 / start.elapsed().as_secs_f64()
}

/// Messages a second from one publisher to one subscriber, until the last has arrived.
async fn publish([here, there]: &Members, size: usize) -> f64 {
    let events = there.subscribe("events", PUBLISHED).await;
    let mut events = events.expect("the bus is there");
    let start = Instant::now();
    let publisher = here.clone();
    let publishing = tokio::spawn(async move {
        let message = Message::new(vec![7; size]);
        for _ in 0..PUBLISHED {
            let sent = publisher.publish("events", message.clone()).await;
            sent.expect("the bus is there");
        }
    });
    for _ in 0..PUBLISHED {
        let arrived = tokio::time::timeout(TIMEOUT, events.next()).await;
        arrived.expect("none is lost").expect("the bus stays");
    }
    let elapsed = start.elapsed();
    publishing.await.expect("no panic");
    PUBLISHED as f64 / elapsed.as_secs_f64()
}

async fn measure(name: &str, members: Members) {
    let [here, there] = &members;
    let requests = there.subscribe("ask", 1024).await;
    let serving = answer_all(there, requests.expect("the bus is there"));
    ask(here, 16).await;
    let [middle, late] = one_by_one(here, 256).await;
    let rate = side_by_side(here, 256).await;
    let [small, large] = [publish(&members, 256).await, publish(&members, 4096).await];
    println!(
        "{name:<19} request 256 B: p50 {middle:6.1} us, p99 {late:6.1} us, {IN_FLIGHT} in flight {rate:7.0}/s; \
         publish 256 B {small:8.0}/s, 4 KiB {large:7.0}/s"
    );
    serving.abort();
}

async fn measure_all(server: Option<&str>, threads: &str) {
    measure(&format!("memory, {threads}"), in_memory()).await;
    match server {
        Some(server) => measure(&format!("nats, {threads}"), over_nats(server).await).await,
        None => println!("nats: not measured, no address of a server was given"),
    }
}

fn main() {
    let server = std::env::args().nth(1);
    let one = Builder::new_current_thread().enable_all().build();
    let one = one.expect("a runtime");
    let two = Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let two = two.expect("a runtime");
    one.block_on(measure_all(server.as_deref(), "one thread"));
    // Its connections end with it. Left open and unread they would be slow consumers, for which the server holds up
    // whoever publishes.
    drop(one);
    two.block_on(measure_all(server.as_deref(), "two threads"));
}
