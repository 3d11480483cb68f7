//! Spans of phases that are over and were measured elsewhere: an engine thread counts its steps without a span open and
//! reports once.

use std::{
    borrow::Cow,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use opentelemetry::{
    KeyValue,
    trace::{Event, Link, Span as _, SpanBuilder, Status},
};

use crate::{propagation, setup};

/// A phase that is over. `record` files it as a span.
#[derive(Clone, Debug, Default)]
pub struct FinishedSpan {
    /// One of `names::spans`.
    pub name: &'static str,
    /// The `traceparent` of the span it belongs to; empty for a span of its own.
    pub parent: String,
    /// When it began, in microseconds since 1970.
    pub start_unix_us: u64,
    /// When it ended.
    pub end_unix_us: u64,
    /// Names are those of `names::attributes`.
    pub attributes: Vec<KeyValue>,
    /// Moments inside it: microseconds since 1970 and a name of `names::events`.
    pub events: Vec<(u64, &'static str)>,
    /// `traceparent`s of spans that led to it.
    pub links: Vec<String>,
    /// What went wrong.
    pub error: Option<String>,
}

impl FinishedSpan {
    /// Files the span and returns its own `traceparent`, for children measured elsewhere. Without telemetry it does
    /// nothing and returns the parent.
    pub fn record(self) -> String {
        let Some(tracer) = setup::installed_tracer() else {
            return self.parent;
        };
        let parent = propagation::context_from(&self.parent).unwrap_or_default();
        let mut span = self.builder().start_with_context(tracer, &parent);
        if let Some(error) = self.error {
            span.set_status(Status::error(error));
        }
        let traceparent = format!(
            "00-{}-{}-01",
            span.span_context().trace_id(),
            span.span_context().span_id()
        );
        span.end_with_timestamp(at(self.end_unix_us));
        traceparent
    }

    fn builder(&self) -> SpanBuilder {
        let events = self.events.iter().map(|(unix_us, name)| {
            let name = Cow::Borrowed(*name);
            Event::new(name, at(*unix_us), Vec::new(), 0)
        });
        let links = self.links.iter().filter_map(|link| {
            let context = propagation::span_context_from(link)?;
            Some(Link::new(context, Vec::new(), 0))
        });
        SpanBuilder::from_name(self.name)
            .with_start_time(at(self.start_unix_us))
            .with_attributes(self.attributes.iter().cloned())
            .with_events(events.collect())
            .with_links(links.collect())
    }
}

fn at(unix_us: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(unix_us)
}
