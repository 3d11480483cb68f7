use tracing::{info, info_span};

use super::*;
use crate::{
    add_link,
    names::{attributes, events, spans},
    set_parent, traceparent_of,
};

#[test]
fn a_second_init_joins_the_first() {
    let (first, second) = (init_for_tests(), init_for_tests());
    drop(first);
    {
        let _span = info_span!(spans::GATEWAY_REQUEST, { attributes::REQUEST_ID } = "joined").entered();
    }
    assert_eq!(second.traces().by_request("joined").len(), 1);
}

#[test]
fn spans_of_peers_hang_below_the_request() {
    let telemetry = init_for_tests();
    let client = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
    let request = info_span!(
        spans::GATEWAY_REQUEST,
        { attributes::REQUEST_ID } = "propagated",
        { attributes::HTTP_STATUS } = tracing::field::Empty
    );
    set_parent(&request, client);
    let carried = traceparent_of(&request);
    assert!(carried.starts_with("00-0af7651916cd43dd8448eb211c80319c-"), "{carried}");
    {
        let peer = info_span!(spans::DECODE_RUN, { attributes::INSTANCE } = "decode.0");
        set_parent(&peer, &carried);
        add_link(&peer, "00-11111111111111111111111111111111-2222222222222222-01");
        peer.in_scope(|| info!(name: events::FIRST_TOKEN, "first text left"));
    }
    request.record(attributes::HTTP_STATUS, 200);
    drop(request);

    let spans = telemetry.traces().by_request("propagated");
    let find = |name| spans.iter().find(|span| span.name == name).unwrap();
    let (request, decode) = (find("gateway.request"), find("decode.run"));
    assert_eq!(request.parent_id.as_deref(), Some("b7ad6b7169203331"));
    assert_eq!(request.attribute(attributes::HTTP_STATUS), Some("200"));
    assert_eq!(decode.parent_id.as_ref(), Some(&request.span_id));
    assert_eq!(decode.instance(), Some("decode.0"));
    assert_eq!(decode.links, ["2222222222222222"]);
    assert_eq!(decode.events.len(), 1);
    assert_eq!(decode.events[0].attributes, []);
}

#[test]
fn malformed_parents_are_ignored() {
    let _telemetry = init_for_tests();
    let span = info_span!(spans::GATEWAY_REQUEST);
    set_parent(&span, "00-zz-1-01");
    set_parent(&span, "");
    let own = traceparent_of(&span);
    assert_eq!(own.len(), 55);
    assert_eq!(traceparent_of(&tracing::Span::none()), "");
}

#[test]
fn wrong_settings_are_refused_with_their_value() {
    let error = parse_filter("cluster=loud").unwrap_err().to_string();
    assert!(error.starts_with("log filter 'cluster=loud' is not a list"), "{error}");
    let error = "xml".parse::<LogFormat>().unwrap_err().to_string();
    assert_eq!(error, "log format 'xml' is neither text nor json");
}

#[test]
fn moments_of_requests_are_log_lines_only_when_they_are_asked_for() {
    for (asked, is_line) in [
        ("info", false),
        ("cluster=debug", false),
        ("info,cluster_moment=info", true),
    ] {
        let lines = Lines::default();
        let logs = tracing_subscriber::fmt::layer()
            .with_writer(lines.clone())
            .with_filter(parse_filter(asked).unwrap());
        tracing::subscriber::with_default(tracing_subscriber::registry().with(logs), || {
            info!(target: targets::MOMENT, "first text");
            info!(target: "cluster_roles", "actor ended");
        });
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.contains("first text"), is_line, "{asked}: {text}");
        assert!(text.contains("actor ended"), "{asked}: {text}");
    }
}

/// A log that can be read.
#[derive(Clone, Default)]
struct Lines(std::sync::Arc<std::sync::Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> tracing_subscriber::fmt::MakeWriter<'a> for Lines {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}
