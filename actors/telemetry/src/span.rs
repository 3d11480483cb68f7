//! A span as it is kept, printed and sent to whoever asks: plain data.

use std::time::{SystemTime, UNIX_EPOCH};

use opentelemetry::trace::{SpanId, Status};
use opentelemetry_sdk::trace::SpanData;
use serde::{Deserialize, Serialize};

use crate::names::attributes;

/// One finished span.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SpanRecord {
    /// 32 hexadecimal digits.
    pub trace_id: String,
    /// 16 hexadecimal digits.
    pub span_id: String,
    /// The span that caused it.
    pub parent_id: Option<String>,
    /// One of `names::spans`.
    pub name: String,
    /// The process that did it.
    pub service: String,
    /// Microseconds since 1970.
    pub start_unix_us: u64,
    /// Microseconds since 1970.
    pub end_unix_us: u64,
    /// Names and values, as recorded.
    pub attributes: Vec<(String, String)>,
    /// Moments inside it.
    pub events: Vec<SpanEvent>,
    /// Spans that led to it without being its parent.
    pub links: Vec<String>,
    /// What went wrong.
    pub error: Option<String>,
}

/// A moment inside a span.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SpanEvent {
    /// What happened.
    pub name: String,
    /// Microseconds since 1970.
    pub unix_us: u64,
    /// Names and values.
    pub attributes: Vec<(String, String)>,
}

impl SpanRecord {
    /// The value of an attribute.
    pub fn attribute(&self, name: &str) -> Option<&str> {
        let (_, value) = self.attributes.iter().find(|(key, _)| key == name)?;
        Some(value)
    }

    /// Who did it: `decode.0`.
    pub fn instance(&self) -> Option<&str> {
        self.attribute(attributes::INSTANCE)
    }

    /// How long it took.
    pub fn duration_us(&self) -> u64 {
        self.end_unix_us.saturating_sub(self.start_unix_us)
    }

    pub(crate) fn from_data(span: &SpanData, service: &str) -> Self {
        let parent = span.parent_span_id;
        Self {
            trace_id: span.span_context.trace_id().to_string(),
            span_id: span.span_context.span_id().to_string(),
            parent_id: (parent != SpanId::INVALID).then(|| parent.to_string()),
            name: span.name.to_string(),
            service: service.to_owned(),
            start_unix_us: unix_us(span.start_time),
            end_unix_us: unix_us(span.end_time),
            attributes: texts(&span.attributes),
            events: span.events.iter().map(SpanEvent::from_data).collect(),
            links: span
                .links
                .iter()
                .map(|link| link.span_context.span_id().to_string())
                .collect(),
            error: error_of(&span.status),
        }
    }
}

impl SpanEvent {
    fn from_data(event: &opentelemetry::trace::Event) -> Self {
        Self {
            name: event.name.to_string(),
            unix_us: unix_us(event.timestamp),
            attributes: texts(&event.attributes)
                .into_iter()
                .filter(|(name, _)| !LOG_ATTRIBUTES.contains(&name.as_str()))
                .collect(),
        }
    }
}

/// What the bridge adds to each event for logs; in a trace it says nothing.
const LOG_ATTRIBUTES: [&str; 2] = ["level", "target"];

fn texts(attributes: &[opentelemetry::KeyValue]) -> Vec<(String, String)> {
    attributes
        .iter()
        .map(|pair| (pair.key.to_string(), pair.value.as_str().into_owned()))
        .collect()
}

fn error_of(status: &Status) -> Option<String> {
    match status {
        Status::Error { description } => Some(description.to_string()),
        Status::Unset | Status::Ok => None,
    }
}

fn unix_us(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_micros() as u64)
}
