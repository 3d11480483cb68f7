use super::*;
use crate::SpanEvent;

fn span(id: &str, parent: &str, name: &str, from: u64, to: u64) -> SpanRecord {
    SpanRecord {
        span_id: id.into(),
        parent_id: (!parent.is_empty()).then(|| parent.into()),
        name: name.into(),
        start_unix_us: 1_000_000 + from,
        end_unix_us: 1_000_000 + to,
        ..SpanRecord::default()
    }
}

fn with(mut span: SpanRecord, attributes: &[(&str, &str)]) -> SpanRecord {
    let pairs = attributes
        .iter()
        .map(|(key, value)| (key.to_string(), value.to_string()));
    span.attributes.extend(pairs);
    span
}

#[test]
fn a_request_is_drawn_as_a_tree_with_bars() {
    let mut decode = with(span("c", "a", "decode.run", 2000, 10_000), &[("instance", "decode.0")]);
    decode.events.push(SpanEvent {
        name: "first_token".into(),
        unix_us: 1_003_500,
        attributes: vec![],
    });
    let encode = with(
        span("b", "a", "tokenizer.encode", 0, 1000),
        &[("instance", "tokenizer.0"), ("gen_ai.usage.input_tokens", "31")],
    );
    let root = with(span("a", "", "gateway.request", 0, 10_000), &[("request.id", "00ff")]);
    let prefill = span("d", "c", "prefill.run", 2000, 3500);
    let mut lost = span("e", "gone", "kv.transfer", 5000, 5001);
    lost.error = Some("instance_lost".into());
    let text = waterfall(&[decode, encode, root, prefill, lost], 72);
    let expected = "\
gateway.request    │████████████████████████│    10.00 ms
├ tokenizer.encode │██                      │     1.00 ms  tokenizer.0 …
└ decode.run       │    ████████████████████│     8.00 ms  decode.0
    · first_token +1.50 ms
  └ prefill.run    │    ████                │     1.50 ms
kv.transfer        │            █           │     0.00 ms              …
";
    assert_eq!(text, expected);
    assert!(text.lines().all(|line| line.chars().count() <= 72));
}

#[test]
fn attributes_and_errors_follow_when_there_is_room() {
    let mut failed = with(span("a", "", "decode.run", 0, 10), &[("engine.steps", "7")]);
    failed.error = Some("deadline_exceeded".into());
    let text = waterfall(&[failed], 100);
    assert!(
        text.trim_end()
            .ends_with("0.01 ms    ✗ deadline_exceeded  engine.steps=7"),
        "{text}"
    );
}

#[test]
fn nothing_is_drawn_of_nothing_and_an_instant_is_visible() {
    assert_eq!(waterfall(&[], 80), "");
    let text = waterfall(&[span("a", "", "x", 5, 5)], 30);
    assert_eq!(text, "x │█         │     0.00 ms\n");
}
