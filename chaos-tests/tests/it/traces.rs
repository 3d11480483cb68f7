//! A trace that is read right after the answer tells the whole way of its request.

use std::collections::BTreeSet;

use cluster_roles::Instance;
use cluster_telemetry::{
    SpanRecord,
    names::{attributes, events, spans},
};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::sandbox::{AGGREGATED, DECODE, FAR_TOO_LONG, Sandbox, Topology, completion};

/// The spans of the request that `answer` belongs to, once they meet `condition`.
pub(crate) async fn trace_of(answer: &Value, condition: impl Fn(&[SpanRecord]) -> bool) -> Vec<SpanRecord> {
    let id = answer["id"]
        .as_str()
        .expect("an id")
        .rsplit('-')
        .next()
        .expect("digits");
    let traces = cluster_telemetry::init_for_tests().traces().clone();
    let met = async {
        loop {
            let spans = traces.by_request(id);
            if condition(&spans) {
                return spans;
            }
            tokio::task::yield_now().await;
        }
    };
    match timeout(FAR_TOO_LONG, met).await {
        Ok(spans) => spans,
        Err(_) => panic!("the trace of {id} stays at {:#?}", traces.by_request(id)),
    }
}

pub(crate) fn named<'a>(spans: &'a [SpanRecord], name: &'a str) -> impl Iterator<Item = &'a SpanRecord> {
    spans.iter().filter(move |span| span.name == name)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trace_has_every_phase_split_or_not() {
    for (workers, is_split) in [(AGGREGATED, false), ("  prefill:\n  decode:\n", true)] {
        let sandbox = Sandbox::start(Topology {
            workers,
            ..Topology::default()
        })
        .await;
        let answer = sandbox.complete("Where does the time go?", &json!({})).await;
        // The gateway's span ends with the last byte, the others before it.
        let spans = trace_of(&answer, |spans| named(spans, spans::GATEWAY_REQUEST).count() == 1).await;
        let found: BTreeSet<_> = spans.iter().map(|span| span.name.as_str()).collect();
        let mut expected = BTreeSet::from([
            spans::GATEWAY_REQUEST,
            spans::TOKENIZER_ENCODE,
            spans::ROUTER_CHOOSE,
            spans::PREFILL_RUN,
            spans::DECODE_RUN,
            spans::TOKENIZER_DECODE,
        ]);
        if is_split {
            expected.insert(spans::KV_TRANSFER);
        }
        assert_eq!(found, expected, "{workers}");
        let decode = named(&spans, spans::DECODE_RUN).next().expect("a decode span");
        assert_eq!(decode.attribute(attributes::OUTPUT_TOKENS), Some("32"));
        assert_eq!(decode.attribute(attributes::ATTEMPT), None);
        let prefill = named(&spans, spans::PREFILL_RUN).next().expect("a prefill span");
        assert_eq!(prefill.parent_id.as_ref(), Some(&decode.span_id));
        assert_eq!(prefill.attribute(attributes::CACHED_TOKENS), Some("0"));
        assert!(
            spans
                .iter()
                .all(|span| span.attribute(attributes::ERROR_TYPE).is_none())
        );
        sandbox.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_shows_in_the_trace() {
    // It never comes to its end: whatever is killed, is killed in the middle.
    let script = format!(
        "step_us: 1000\nscripts:\n  - emit: [{{ text: \"to be continued\" }}]\n    stalls: [{{ after: 5, steps: {} }}]\n",
        u32::MAX
    );
    let sandbox = Sandbox::start(Topology {
        script: Some(&script),
        ..Topology::default()
    })
    .await;
    let mut stream = sandbox.stream("/v1/completions", &completion("x", &json!({}))).await;
    let first: Value = serde_json::from_str(&stream.next().await.expect("a first event")).expect("JSON");
    sandbox.running.kill(DECODE);
    sandbox.wait_for_restart(DECODE, 1).await;
    let runs_again = |path, instance: &Instance| path != DECODE || instance.load.running == 1;
    sandbox.wait_for("at work on the moved request", runs_again).await;
    drop(stream);
    let is_whole = |spans: &[SpanRecord]| {
        let count = |name| named(spans, name).count();
        count(spans::DECODE_RUN) == 2 && count(spans::TOKENIZER_DECODE) == 1
    };
    let spans = trace_of(&first, is_whole).await;
    let runs: Vec<_> = named(&spans, spans::DECODE_RUN).collect();
    let [lost, moved] = runs[..] else {
        panic!("two runs, not {runs:#?}")
    };
    assert_eq!(lost.attribute(attributes::ERROR_TYPE), Some("instance_lost"));
    assert_eq!(moved.attribute(attributes::ATTEMPT), Some("1"));
    assert!(
        moved.links.iter().any(|link| link.contains(&lost.span_id)),
        "{:?} names {}",
        moved.links,
        lost.span_id
    );
    let decoded = named(&spans, spans::TOKENIZER_DECODE).next().expect("a decode span");
    assert!(
        decoded.events.iter().any(|event| event.name == events::MIGRATED),
        "{:?}",
        decoded.events
    );
}
