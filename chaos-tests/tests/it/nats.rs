//! Messaging and actor calls against a real NATS server: the suites of the fabric, and what only a server can do to its
//! clients.

mod server;

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use cluster_fabric::{
    Delivery, Directory, Message, Messaging, MessagingError, Nats, NatsOptions, Subscription, SystemClock,
    conformance::{self, DirectoryMembers},
};
use cluster_messages::NodeId;

use self::server::TestServer;

/// Longer than anything here takes, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

async fn soon<T>(work: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(PATIENCE, work).await;
    done.expect("it should have happened by now")
}

/// Waits until `condition` holds.
async fn until(condition: impl AsyncFn() -> bool) {
    soon(async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

async fn connect(options: NatsOptions) -> Nats {
    let nats = Nats::connect(options).await.expect("the options are right");
    nats.ready(PATIENCE).await.expect("the server is there");
    nats
}

async fn next(subscription: &mut Subscription) -> Delivery {
    soon(subscription.next()).await.expect("the connection stays")
}

fn unavailable<T>(outcome: &Result<T, MessagingError>) -> bool {
    matches!(outcome, Err(MessagingError::Unavailable(_)))
}

/// One server, of which each pair of members gets a world of its own.
struct Worlds {
    server: TestServer,
    used: AtomicUsize,
}

impl Worlds {
    fn start() -> Self {
        Self {
            server: TestServer::start_with_worlds(),
            used: AtomicUsize::new(0),
        }
    }

    async fn pair(&self) -> [Nats; 2] {
        let world = self.used.fetch_add(1, Ordering::Relaxed);
        let member = async |name| connect(self.server.options_in(world, name)).await;
        [member("here").await, member("there").await]
    }
}

async fn conforms() {
    let worlds = Worlds::start();
    conformance::messaging(async || worlds.pair().await.map(|nats| Arc::new(nats) as Arc<dyn Messaging>)).await;
    conformance::directory(async || {
        let clock = SystemClock::shared();
        let [here, there] = worlds.pair().await;
        let directories = [("here", here), ("there", there)]
            .map(|(name, nats)| Directory::new(NodeId(name.into()), "test", Arc::new(nats), clock.clone()));
        DirectoryMembers { clock, directories }
    })
    .await;
}

#[tokio::test]
async fn nats_conforms_on_one_thread() {
    conforms().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nats_conforms_on_two_threads() {
    conforms().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_and_comes_back_is_served_again() {
    let mut server = TestServer::start();
    let (here, there) = (
        connect(server.options("here")).await,
        connect(server.options("there")).await,
    );
    let mut events = soon(there.subscribe("events", 64)).await.expect("it is there");
    let mut silent = soon(there.subscribe("ask", 64)).await.expect("it is there");
    let asker = here.clone();
    let asked = tokio::spawn(async move { asker.request("ask", Message::new("?"), Duration::from_secs(600)).await });
    next(&mut silent).await;

    server.kill();
    let broken = soon(asked).await.expect("no panic");
    assert_eq!(
        broken,
        Err(MessagingError::Lost("ask".into())),
        "it does not wait for its timeout"
    );
    until(async || unavailable(&here.publish("events", Message::new("lost")).await)).await;
    for _ in 0..100 {
        let published = here.publish("events", Message::new("between")).await;
        assert!(unavailable(&published), "{published:?}");
    }
    let asked = here.request("ask", Message::new("between"), PATIENCE).await;
    assert!(unavailable(&asked), "{asked:?}");
    assert!(here.subscribe("more", 8).await.is_err());

    server.restart();
    soon(here.ready(PATIENCE)).await.expect("it is back");
    soon(there.ready(PATIENCE)).await.expect("it is back");
    assert!(here.connections() >= 2 && there.connections() >= 2);
    here.publish("events", Message::new("after")).await.expect("it is back");
    // What was handed over just before the crash may come as well; what was refused may not.
    loop {
        let payload = next(&mut events).await.message.payload;
        assert_ne!(payload, "between");
        if payload == "after" {
            break;
        }
    }
    let mut fresh = soon(there.subscribe("fresh", 8)).await.expect("it is back");
    here.publish("fresh", Message::new("x")).await.expect("it is back");
    next(&mut fresh).await;
}

#[tokio::test]
async fn a_frozen_server_is_noticed() {
    let server = TestServer::start();
    let nats = connect(server.options("n")).await;
    server.freeze();
    // Its sockets stay open; only the pings tell, after three seconds. Patience ends long before the client's own minute.
    until(async || unavailable(&nats.publish("events", Message::new("x")).await)).await;
    server.thaw();
    nats.ready(PATIENCE).await.expect("it goes on");
}

#[tokio::test]
async fn a_server_may_come_later() {
    let mut server = TestServer::start();
    server.kill();
    let nats = Nats::connect(server.options("early"))
        .await
        .expect("nobody needs to be there");
    assert!(unavailable(&nats.publish("events", Message::default()).await));
    let told = nats.ready(Duration::from_millis(50)).await.unwrap_err().to_string();
    assert!(told.contains("127.0.0.1:"), "{told}");
    server.restart();
    nats.ready(PATIENCE).await.expect("it is there now");
    let mut events = soon(nats.subscribe("events", 8)).await.expect("it is there");
    nats.publish("events", Message::new("x")).await.expect("it is there");
    next(&mut events).await;
}

#[tokio::test]
async fn wrong_credentials_are_named() {
    let server = TestServer::start_with_worlds();
    let nats = Nats::connect(server.options("nobody"))
        .await
        .expect("the options are right");
    until(async || {
        let told = nats.ready(Duration::from_millis(20)).await.unwrap_err().to_string();
        told.contains("authorization")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_reader_loses_a_counted_number() {
    const SENT: u64 = 20_000;
    const ROOM: u64 = 100;
    let server = TestServer::start();
    let (here, there) = (
        connect(server.options("here")).await,
        connect(server.options("there")).await,
    );
    let mut slow = soon(there.subscribe("events", ROOM as usize))
        .await
        .expect("it is there");
    let mut quick = soon(there.subscribe("events", SENT as usize))
        .await
        .expect("it is there");
    for number in 0..SENT {
        here.publish("events", Message::new(number.to_string()))
            .await
            .expect("it is there");
    }
    for number in 0..SENT {
        assert_eq!(next(&mut quick).await.message.payload, number.to_string());
    }
    until(async || slow.lost() == SENT - ROOM).await;
    for number in 0..ROOM {
        assert_eq!(next(&mut slow).await.message.payload, number.to_string());
    }
    assert_eq!((quick.lost(), there.overflows()), (0, 0));
}

/// On one thread the client reads a whole burst before any pump runs: with no room of its own it must drop.
#[tokio::test]
async fn what_the_client_itself_drops_is_counted_too() {
    let server = TestServer::start();
    let narrow = NatsOptions {
        backlog_max: 1,
        ..server.options("narrow")
    };
    let (here, there) = (connect(server.options("here")).await, connect(narrow).await);
    let subscription = soon(there.subscribe("events", 1 << 16)).await.expect("it is there");
    until(async || {
        for _ in 0..1000 {
            here.publish("events", Message::new("x")).await.expect("it is there");
        }
        there.overflows() > 0 && subscription.lost() > 0
    })
    .await;
}

#[tokio::test]
async fn that_nobody_answers_is_known_at_once() {
    let server = TestServer::start();
    let nats = connect(server.options("n")).await;
    let mut quickest = Duration::MAX;
    for _ in 0..20 {
        let start = Instant::now();
        let asked = soon(nats.request("ask", Message::default(), Duration::from_secs(600))).await;
        assert_eq!(asked, Err(MessagingError::NoResponders("ask".into())));
        quickest = quickest.min(start.elapsed());
    }
    assert!(quickest < Duration::from_millis(100), "{quickest:?}");
}
