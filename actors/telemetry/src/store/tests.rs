use opentelemetry::{
    InstrumentationScope, KeyValue,
    trace::{SpanContext, SpanKind, Status, TraceFlags, TraceState},
};
use opentelemetry_sdk::trace::{SpanEvents, SpanLinks};

use super::*;

fn span(trace: u128, id: u64, parent: u64, request: Option<&str>) -> SpanData {
    let start = std::time::UNIX_EPOCH + Duration::from_micros(1000 + id);
    SpanData {
        span_context: SpanContext::new(
            TraceId::from(trace),
            SpanId::from(id),
            TraceFlags::SAMPLED,
            false,
            TraceState::default(),
        ),
        parent_span_id: SpanId::from(parent),
        parent_span_is_remote: false,
        span_kind: SpanKind::Internal,
        name: format!("s{id}").into(),
        start_time: start,
        end_time: start + Duration::from_micros(5),
        attributes: request
            .map(|id| KeyValue::new(attributes::REQUEST_ID, id.to_owned()))
            .into_iter()
            .collect(),
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links: SpanLinks::default(),
        status: Status::error("lost"),
        instrumentation_scope: InstrumentationScope::default(),
    }
}

fn names(store: &TraceStore, request: &str) -> Vec<String> {
    let spans = store.by_request(request);
    spans.into_iter().map(|span| span.name).collect()
}

#[test]
fn a_request_is_its_spans_and_all_below_but_not_its_neighbours() {
    let store = TraceStore::new("cluster", 4);
    // Two requests of one client under one trace id; children end before their parents.
    store.insert(span(1, 3, 2, None));
    store.insert(span(1, 2, 1, None));
    store.insert(span(1, 1, 99, Some("aa")));
    store.insert(span(1, 5, 4, None));
    store.insert(span(1, 4, 99, Some("bb")));
    assert_eq!(names(&store, "aa"), ["s1", "s2", "s3"]);
    assert_eq!(names(&store, "bb"), ["s4", "s5"]);
    assert_eq!(names(&store, "cc"), [""; 0]);
    let first = &store.by_request("aa")[0];
    assert_eq!(first.attribute(attributes::REQUEST_ID), Some("aa"));
    assert_eq!((first.start_unix_us, first.duration_us()), (1001, 5));
    assert_eq!(first.error.as_deref(), Some("lost"));
    assert_eq!(first.service, "cluster");
}

#[test]
fn the_oldest_trace_goes_and_its_requests_with_it() {
    let store = TraceStore::new("cluster", 2);
    for trace in 1..=3u128 {
        store.insert(span(trace, 1, 0, Some(&format!("r{trace}"))));
    }
    assert_eq!(store.traces_len(), 2);
    assert_eq!(names(&store, "r1"), [""; 0]);
    assert_eq!(names(&store, "r3"), ["s1"]);
    let held = store.lock();
    assert_eq!((held.by_id.len(), held.by_request.len()), (2, 2));
}

#[test]
fn a_trace_keeps_its_last_spans() {
    let store = TraceStore::new("cluster", 2);
    for id in 1..=(SPANS_MAX as u64 + 10) {
        store.insert(span(1, id, 0, Some(&format!("r{id}"))));
    }
    assert_eq!(names(&store, "r10"), [""; 0]);
    assert_eq!(names(&store, "r11"), ["s11"]);
    assert_eq!(store.lock().by_request.len(), SPANS_MAX);
}

#[test]
fn a_store_of_no_traces_keeps_none() {
    let store = TraceStore::new("cluster", 0);
    store.insert(span(1, 1, 0, Some("aa")));
    assert_eq!(store.traces_len(), 0);
}
