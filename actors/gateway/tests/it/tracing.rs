//! What a request leaves in the trace store, and what it tells its peers.

use std::time::{SystemTime, UNIX_EPOCH};

use cluster_gateway::{Settings, TextStream};
use cluster_messages::{Deadline, ErrorKind, RequestError};
use cluster_telemetry::names::attributes;
use futures::{StreamExt, stream};

use crate::harness::{Fake, Server, chat, short_answer};

const CLIENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

#[tokio::test]
async fn a_request_is_one_span_below_the_clients() {
    let telemetry = cluster_telemetry::init_for_tests();
    let fake = Fake::of(short_answer());
    let server = Server::start_at(0x1000, fake.clone(), Settings::default()).await;
    let request = chat(r#","stream":true,"max_tokens":5,"temperature":0.5"#)
        .replace("host: x", &format!("host: x\r\ntraceparent: {CLIENT}"));
    let answer = server.send(&request).await;
    let id = answer.header("x-request-id").unwrap();
    assert_eq!(id, "00000000000000000000000000001001");

    let header = fake.requests.lock().unwrap()[0].header.clone();
    assert_eq!(header.request.to_string(), id);
    assert_eq!(header.deadline, Deadline(1000 + 600_000));
    let spans = telemetry.traces().by_request(id);
    let span = &spans[0];
    assert_eq!((spans.len(), &*span.name), (1, "gateway.request"));
    assert_eq!(
        header.trace.traceparent,
        format!("00-{}-{}-01", span.trace_id, span.span_id)
    );
    assert_eq!(span.trace_id, "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!(span.parent_id.as_deref(), Some("00f067aa0ba902b7"));
    for (name, value) in [
        (attributes::OPERATION, "chat"),
        (attributes::REQUEST_MODEL, "tiny"),
        (attributes::REQUEST_MAX_TOKENS, "5"),
        (attributes::REQUEST_TEMPERATURE, "0.5"),
        (attributes::STREAM, "true"),
        (attributes::INPUT_TOKENS, "7"),
        (attributes::OUTPUT_TOKENS, "3"),
        (attributes::CACHED_TOKENS, "4"),
        (attributes::FINISH_REASONS, "stop"),
        (attributes::HTTP_STATUS, "200"),
    ] {
        assert_eq!(span.attribute(name), Some(value), "{name}");
    }
    assert_eq!(span.attribute(attributes::ERROR_TYPE), None);
    assert_eq!(span.events.len(), 1);
}

#[tokio::test]
async fn a_failed_request_says_so_in_its_span() {
    let telemetry = cluster_telemetry::init_for_tests();
    let (fake, _drops) = Fake::new(|_| {
        let lost = Err(RequestError::new(ErrorKind::Lost, "gone"));
        Ok(TextStream::new(stream::iter([lost])))
    });
    let server = Server::start_at(0x2000, fake, Settings::default()).await;
    let answer = server.chat("").await;
    let spans = telemetry.traces().by_request(answer.header("x-request-id").unwrap());
    assert_eq!(spans[0].attribute(attributes::ERROR_TYPE), Some("instance_lost"));
    assert_eq!(spans[0].attribute(attributes::HTTP_STATUS), Some("503"));
    let kinds = spans[0]
        .attributes
        .iter()
        .filter(|(name, _)| name == attributes::HTTP_STATUS);
    assert_eq!(kinds.count(), 1);
}

#[tokio::test]
async fn a_span_lasts_until_the_last_frame() {
    let telemetry = cluster_telemetry::init_for_tests();
    let (moments_in, moments) = std::sync::mpsc::channel();
    let (fake, _drops) = Fake::new(move |_| {
        let mut items = short_answer();
        let last = items.pop().unwrap();
        let moments_in = moments_in.clone();
        let late = stream::once(async move {
            moments_in.send(SystemTime::now()).unwrap();
            last
        });
        Ok(TextStream::new(stream::iter(items).chain(late)))
    });
    let server = Server::start_at(0x3000, fake, Settings::default()).await;
    let answer = server.chat("").await;
    let spans = telemetry.traces().by_request(answer.header("x-request-id").unwrap());
    let last = moments.recv().unwrap().duration_since(UNIX_EPOCH).unwrap();
    assert!(u128::from(spans[0].end_unix_us) >= last.as_micros(), "{:?}", spans[0]);
}
