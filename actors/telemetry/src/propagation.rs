//! The W3C trace context between processes and actors: what a span tells its peers, and what a span learns from them.

use opentelemetry::{
    Context,
    propagation::{Extractor, TextMapPropagator},
    trace::{SpanContext, TraceContextExt},
};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// The `traceparent` (version 00) that makes a peer's span a child of `span`; empty when nothing is traced.
pub fn traceparent_of(span: &Span) -> String {
    let context = span.context();
    let context = context.span().span_context().clone();
    if !context.is_valid() {
        return String::new();
    }
    format!(
        "00-{}-{}-{:02x}",
        context.trace_id(),
        context.span_id(),
        context.trace_flags().to_u8()
    )
}

/// Makes `span` a child of the sender's span. Must come before the span is entered or its context taken; a malformed
/// `traceparent` is ignored, as the W3C recommendation asks.
pub fn set_parent(span: &Span, traceparent: &str) {
    if let Some(context) = context_from(traceparent)
        && let Err(error) = span.set_parent(context)
    {
        tracing::trace!(%error, "span keeps its own parent");
    }
}

/// Links `span` to another one that led to it without being its parent: an earlier attempt of a moved request.
pub fn add_link(span: &Span, traceparent: &str) {
    if let Some(context) = span_context_from(traceparent) {
        span.add_link(context);
    }
}

pub(crate) fn context_from(traceparent: &str) -> Option<Context> {
    let context = TraceContextPropagator::new().extract_with_context(&Context::new(), &Traceparent(traceparent));
    context.span().span_context().is_valid().then_some(context)
}

pub(crate) fn span_context_from(traceparent: &str) -> Option<SpanContext> {
    context_from(traceparent).map(|context| context.span().span_context().clone())
}

struct Traceparent<'a>(&'a str);

impl Extractor for Traceparent<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        (key == "traceparent").then_some(self.0)
    }

    fn keys(&self) -> Vec<&str> {
        vec!["traceparent"]
    }
}
