//! The last traces, in memory and bounded: what `cluster trace` reads when nothing else is installed.
//!
//! Finished spans are kept as they come and turned into records only when somebody asks, because every request files
//! spans and hardly any is looked at. Two bounds: traces in all (the oldest goes) and spans per trace (the oldest goes).

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use opentelemetry::{
    Context, Value,
    trace::{SpanId, TraceId},
};
use opentelemetry_sdk::{
    error::OTelSdkResult,
    trace::{Span, SpanData, SpanProcessor},
};

use crate::{SpanRecord, names::attributes};

/// One client may send many requests under one trace id; this many spans of it are kept.
const SPANS_MAX: usize = 512;

/// A cheap handle on the stored traces.
#[derive(Clone, Debug)]
pub struct TraceStore {
    service: Arc<str>,
    traces_max: usize,
    traces: Arc<Mutex<Traces>>,
}

#[derive(Debug, Default)]
struct Traces {
    by_id: HashMap<TraceId, VecDeque<SpanData>>,
    by_request: HashMap<String, TraceId>,
    /// Oldest first.
    order: VecDeque<TraceId>,
}

impl TraceStore {
    /// An empty store that keeps the last `traces_max` traces of the process called `service`.
    pub fn new(service: &str, traces_max: usize) -> Self {
        Self {
            service: service.into(),
            traces_max,
            traces: Arc::default(),
        }
    }

    /// The spans of one request, by start: those that carry its id and all below them. Empty when it is not known.
    pub fn by_request(&self, request_id: &str) -> Vec<SpanRecord> {
        let traces = self.lock();
        let Some(spans) = traces.by_request.get(request_id).and_then(|id| traces.by_id.get(id)) else {
            return Vec::new();
        };
        let wanted = family_of(request_id, spans);
        let mut records: Vec<_> = spans
            .iter()
            .filter(|span| wanted.contains(&span.span_context.span_id()))
            .map(|span| SpanRecord::from_data(span, &self.service))
            .collect();
        records.sort_by_key(|record| (record.start_unix_us, u64::MAX - record.end_unix_us));
        records
    }

    /// Traces held now.
    pub fn traces_len(&self) -> usize {
        self.lock().order.len()
    }

    fn insert(&self, span: SpanData) {
        if self.traces_max == 0 {
            return;
        }
        let id = span.span_context.trace_id();
        let mut traces = self.lock();
        if let Some(request) = request_of(&span) {
            traces.by_request.insert(request.to_owned(), id);
        }
        if !traces.by_id.contains_key(&id) {
            traces.order.push_back(id);
        }
        let spans = traces.by_id.entry(id).or_default();
        spans.push_back(span);
        if spans.len() > SPANS_MAX {
            let oldest = spans.pop_front();
            traces.forget_requests_of(oldest.iter());
        }
        if traces.order.len() > self.traces_max {
            traces.drop_oldest();
        }
    }

    /// A panic elsewhere cannot leave the maps half changed in a way that matters here: a lookup may miss a span.
    fn lock(&self) -> MutexGuard<'_, Traces> {
        self.traces.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Traces {
    fn drop_oldest(&mut self) {
        let Some(oldest) = self.order.pop_front() else { return };
        let spans = self.by_id.remove(&oldest).unwrap_or_default();
        self.forget_requests_of(spans.iter());
    }

    fn forget_requests_of<'a>(&mut self, spans: impl Iterator<Item = &'a SpanData>) {
        for request in spans.filter_map(request_of) {
            self.by_request.remove(request);
        }
    }
}

fn request_of(span: &SpanData) -> Option<&str> {
    let id = span
        .attributes
        .iter()
        .find(|pair| pair.key.as_str() == attributes::REQUEST_ID)?;
    match &id.value {
        Value::String(text) => Some(text.as_str()),
        _ => None,
    }
}

/// The spans that carry the id, and everything below them.
fn family_of(request_id: &str, spans: &VecDeque<SpanData>) -> HashSet<SpanId> {
    let carriers = spans.iter().filter(|span| request_of(span) == Some(request_id));
    let mut family: HashSet<_> = carriers.map(|span| span.span_context.span_id()).collect();
    loop {
        let before = family.len();
        let children = spans.iter().filter(|span| family.contains(&span.parent_span_id));
        let children: Vec<_> = children.map(|span| span.span_context.span_id()).collect();
        family.extend(children);
        if family.len() == before {
            return family;
        }
    }
}

impl SpanProcessor for TraceStore {
    fn on_start(&self, _span: &mut Span, _context: &Context) {}

    fn on_end(&self, span: SpanData) {
        self.insert(span);
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _timeout: Duration) -> OTelSdkResult {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
