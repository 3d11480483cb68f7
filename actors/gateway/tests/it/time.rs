//! Waiting, with a clock that moves only when everybody waits.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use cluster_gateway::{Body, Gateway, Settings, TextStream};
use cluster_messages::FinishReason;
use cluster_telemetry::Metrics;
use futures::{StreamExt, stream};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::{Request, Response, body::Frame};
use tokio::time::{Instant, sleep};

use crate::harness::{Counting, Fake, Item, admitted, delta, finished, usage};

/// A gateway whose frontend plays `items`, each after a pause.
fn gateway(settings: Settings, items: Vec<(u64, Item)>) -> Arc<Gateway> {
    let (fake, _drops) = Fake::new(move |_| {
        let items = stream::iter(items.clone());
        Ok(TextStream::new(items.then(|(pause_s, item)| async move {
            sleep(Duration::from_secs(pause_s)).await;
            item
        })))
    });
    Gateway::new(settings, fake, Metrics::new(), Arc::new(Counting::default()))
}

async fn ask(gateway: &Gateway, extra: &str) -> Response<Body> {
    let body = format!(r#"{{"model":"tiny","messages":[{{"role":"user","content":"x"}}]{extra}}}"#);
    let request = Request::post("/v1/chat/completions").body(Full::new(Bytes::from(body)));
    gateway.handle(request.unwrap()).await
}

async fn text(response: Response<Body>) -> String {
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_silent_stream_says_that_it_lives_every_fifteen_seconds() {
    let script = vec![
        (40, admitted()),
        (0, delta(0, "one", 1)),
        (31, delta(0, "two", 2)),
        (0, finished(0, FinishReason::Stop)),
        (0, usage()),
    ];
    let gateway = gateway(Settings::default(), script);
    let started = Instant::now();
    let response = ask(&gateway, r#","stream":true"#).await;
    // The head leaves after one period, although there is no text yet.
    assert_eq!(started.elapsed(), Duration::from_secs(15));
    let body = text(response).await;
    let kinds: Vec<_> = body
        .split_terminator("\n\n")
        .map(|event| match event {
            ": keep-alive" => "keep-alive",
            "data: [DONE]" => "done",
            event if event.contains("one") => "one",
            event if event.contains("two") => "two",
            event if event.contains("role") => "role",
            _ => "finish",
        })
        .collect();
    let expected = [
        "role",
        "keep-alive",
        "one",
        "keep-alive",
        "keep-alive",
        "two",
        "finish",
        "done",
    ];
    assert_eq!(kinds, expected);
    assert_eq!(started.elapsed(), Duration::from_secs(71));
}

#[tokio::test(start_paused = true)]
async fn a_request_ends_at_its_deadline() {
    let settings = Settings {
        request_time: Duration::from_secs(50),
        ..Settings::default()
    };
    let script = vec![(0, admitted()), (10, delta(0, "one", 1)), (1000, delta(0, "two", 2))];
    let gateway = gateway(settings, script);
    let started = Instant::now();
    let whole = ask(&gateway, "").await;
    assert_eq!((whole.status().as_u16(), started.elapsed().as_secs()), (504, 50));
    let streamed = text(ask(&gateway, r#","stream":true"#).await).await;
    assert_eq!(started.elapsed().as_secs(), 100);
    assert!(streamed.contains("one") && !streamed.contains("[DONE]"), "{streamed}");
    assert!(streamed.ends_with("\"code\":\"deadline_exceeded\"}}\n\n"), "{streamed}");
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_arrive_is_given_up() {
    let gateway = gateway(Settings::default(), vec![]);
    let trickle = stream::iter(0..).then(|_| async {
        sleep(Duration::from_secs(1)).await;
        Ok::<_, std::convert::Infallible>(Frame::data(Bytes::from_static(b" ")))
    });
    let request = Request::post("/v1/chat/completions").body(Box::pin(StreamBody::new(trickle)));
    let started = Instant::now();
    let response = gateway.handle(request.unwrap()).await;
    assert_eq!((response.status().as_u16(), started.elapsed().as_secs()), (408, 30));
}

#[tokio::test(start_paused = true)]
async fn frames_that_are_ready_together_leave_together() {
    let script = vec![
        (0, admitted()),
        (0, delta(0, "one", 1)),
        (0, delta(0, "two", 2)),
        (5, delta(0, "three", 3)),
        (0, finished(0, FinishReason::Stop)),
        (0, usage()),
    ];
    // `sleep(0)` is a wait of its own, so the frames of one moment are taken from a queue without waits.
    let (fake, _drops) = Fake::new(move |_| {
        let script = stream::iter(script.clone());
        Ok(TextStream::new(script.then(|(pause_s, item)| async move {
            if pause_s > 0 {
                sleep(Duration::from_secs(pause_s)).await;
            }
            item
        })))
    });
    let gateway = Gateway::new(Settings::default(), fake, Metrics::new(), Arc::new(Counting::default()));
    let mut body = ask(&gateway, r#","stream":true"#).await.into_body();
    let mut writes = Vec::new();
    while let Some(frame) = body.frame().await {
        let bytes = frame.unwrap().into_data().unwrap();
        writes.push(String::from_utf8(bytes.to_vec()).unwrap().matches("data: ").count());
    }
    assert_eq!(writes, [3, 3]);
}
