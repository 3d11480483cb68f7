//! Places, disconnects and shutdown.

use std::time::Duration;

use cluster_gateway::{Drained, Settings, TextStream};
use cluster_messages::FinishReason;
use futures::{StreamExt, stream};
use tokio::{
    io::AsyncReadExt,
    net::TcpStream,
    sync::{mpsc, watch},
};

use crate::harness::{Answer, Fake, Server, admitted, chat, delta, finished, short_answer, usage};

/// A frontend that says "one ", waits until `gate` opens, and says the rest.
fn gated(
    gate: watch::Receiver<bool>,
) -> (
    std::sync::Arc<Fake>,
    mpsc::UnboundedReceiver<cluster_messages::RequestId>,
) {
    Fake::new(move |_| {
        let mut gate = gate.clone();
        let before = stream::iter([admitted(), delta(0, "one ", 1)]);
        let rest = stream::once(async move {
            let _ = gate.wait_for(|open| *open).await;
            stream::iter([delta(0, "two", 2), finished(0, FinishReason::Stop), usage()])
        });
        Ok(TextStream::new(before.chain(rest.flatten())))
    })
}

/// No test waits for it.
const FOREVER: Duration = Duration::from_secs(3600);

/// Reads until `text` has come.
async fn read_until(connection: &mut TcpStream, text: &str) -> String {
    let mut seen = Vec::new();
    loop {
        let shown = String::from_utf8_lossy(&seen).into_owned();
        if shown.contains(text) {
            return shown;
        }
        let read = connection.read_buf(&mut seen).await.unwrap();
        assert!(read > 0, "the connection ended before {text:?} in {shown:?}");
    }
}

#[tokio::test]
async fn a_full_house_refuses_at_once_and_a_place_comes_back() {
    let (gate, opened) = watch::channel(false);
    let (fake, mut drops) = gated(opened);
    let settings = Settings {
        requests_max: 2,
        retry_after_ms: 1500,
        ..Settings::default()
    };
    let server = Server::start(fake, settings).await;
    let mut streams = Vec::new();
    for _ in 0..2 {
        let mut connection = server.open(&chat(r#","stream":true"#)).await;
        read_until(&mut connection, "one ").await;
        streams.push(connection);
    }
    for extra in ["", r#","stream":true"#] {
        let refused = server.chat(extra).await;
        assert_eq!(
            (refused.status, refused.error("code").as_deref()),
            (503, Some("overloaded"))
        );
        assert_eq!(refused.header("retry-after"), Some("2"));
    }
    assert!(
        server
            .metrics
            .encode()
            .contains("cluster_requests_refused_total{reason=\"overloaded\"} 2")
    );
    gate.send(true).unwrap();
    for _ in 0..2 {
        drops.recv().await.unwrap();
    }
    for stream in streams {
        read_to_end(stream).await;
    }
    assert_eq!(server.chat("").await.status, 200);
}

async fn read_to_end(mut connection: TcpStream) -> String {
    let mut rest = String::new();
    connection.read_to_string(&mut rest).await.unwrap();
    rest
}

#[tokio::test]
async fn a_client_that_leaves_cancels_its_request() {
    let (_gate, opened) = watch::channel(false);
    let (fake, mut drops) = gated(opened);
    let server = Server::start(fake.clone(), Settings::default()).await;

    let mut streamed = server.open(&chat(r#","stream":true"#)).await;
    read_until(&mut streamed, "one ").await;
    drop(streamed);
    let first = drops.recv().await.unwrap();

    let whole = server.open(&chat("")).await;
    // The request has reached the frontend once it is noted there.
    while fake.requests.lock().unwrap().len() < 2 {
        tokio::task::yield_now().await;
    }
    drop(whole);
    assert_ne!(drops.recv().await.unwrap(), first);

    let cancelled = "cluster_requests_total{model=\"tiny\",outcome=\"cancelled\"} 2";
    while !server.metrics.encode().contains(cancelled) {
        tokio::task::yield_now().await;
    }
    assert!(server.metrics.encode().contains("cluster_requests_in_flight 0"));
}

#[tokio::test]
async fn draining_lets_running_streams_finish_and_takes_no_new_connections() {
    let (gate, opened) = watch::channel(false);
    let (fake, _drops) = gated(opened);
    let server = Server::start(fake, Settings::default()).await;
    let address = server.address;
    // A kept connection without a request must not hold the server up.
    let idle = TcpStream::connect(address).await.unwrap();
    let kept = chat(r#","stream":true"#).replace("connection: close\r\n", "");
    let mut running = server.open(&kept).await;
    read_until(&mut running, "one ").await;

    let drained = server.shut_down(FOREVER);
    assert_eq!(read_to_end(idle).await, "");
    assert!(TcpStream::connect(address).await.is_err());
    gate.send(true).unwrap();
    let rest = read_to_end(running).await;
    assert!(rest.contains("two") && rest.contains("[DONE]"), "{rest}");
    assert_eq!(drained.await.unwrap(), Drained::Whole);
}

/// A stream that waits for good and a whole answer that does, both told so by `end`.
async fn cut_by(end: impl FnOnce(Server) -> tokio::task::JoinHandle<Drained>) {
    let (_gate, opened) = watch::channel(false);
    let (fake, mut drops) = gated(opened);
    let server = Server::start(fake.clone(), Settings::default()).await;
    let mut streamed = server.open(&chat(r#","stream":true"#)).await;
    read_until(&mut streamed, "one ").await;
    let whole = server.open(&chat("")).await;
    while fake.requests.lock().unwrap().len() < 2 {
        tokio::task::yield_now().await;
    }
    let drained = end(server);
    let rest = read_to_end(streamed).await;
    assert_eq!(rest.matches("\"error\"").count(), 1, "{rest}");
    assert!(
        rest.contains("\"code\":\"unavailable\"") && !rest.contains("[DONE]"),
        "{rest}"
    );
    let whole = Answer::read(whole).await;
    assert_eq!(
        (whole.status, whole.error("code").as_deref()),
        (503, Some("unavailable"))
    );
    assert_eq!(drained.await.unwrap(), Drained::Cut);
    for _ in 0..2 {
        drops.recv().await.unwrap();
    }
}

#[tokio::test]
async fn what_outlives_the_grace_time_is_told_so() {
    cut_by(|server| server.shut_down(Duration::ZERO)).await;
}

#[tokio::test]
async fn a_drain_can_be_cut_short_and_everyone_is_told_so() {
    cut_by(|server| {
        let gateway = server.gateway.clone();
        let drained = server.shut_down(FOREVER);
        gateway.cut();
        drained
    })
    .await;
}

#[tokio::test]
async fn a_connection_without_a_request_is_not_cut_off_even_without_grace() {
    let server = Server::of(short_answer()).await;
    let idle = TcpStream::connect(server.address).await.unwrap();
    assert_eq!(server.get("/health").await.status, 200);
    let drained = server.shut_down(Duration::ZERO);
    assert_eq!(read_to_end(idle).await, "");
    assert_eq!(drained.await.unwrap(), Drained::Whole);
}

#[tokio::test]
async fn one_connection_serves_many_requests() {
    let server = Server::of(short_answer()).await;
    let kept = chat("").replace("connection: close\r\n", "");
    let last = chat(r#","stream":true"#);
    let answer = read_to_end(server.open(&format!("{kept}{kept}{last}")).await).await;
    assert_eq!(answer.matches("HTTP/1.1 200 OK").count(), 3);
    assert_eq!(answer.matches("[DONE]").count(), 1);
}
