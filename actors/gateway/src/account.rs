//! What is noted about one request: its span, its figures, its place among those in flight. However the request ends,
//! it is counted exactly once; one that is dropped before its end was left by its client.

use std::fmt::Write as _;

use cluster_messages::{ErrorKind, FinishReason, RequestId, TextFrame, TextRequest, Usage};
use cluster_telemetry::{
    Metrics, ModelMetrics,
    names::{attributes, events, spans, targets},
};
use tokio::{sync::OwnedSemaphorePermit, time::Instant};
use tracing::{Span, field::Empty};

use crate::{
    chunks::reason_name,
    error::{ApiError, Fault},
    routes::Api,
};

const OK: &str = "ok";

pub(crate) struct Account {
    span: Span,
    metrics: Metrics,
    served: Option<Served>,
    finish_reasons: String,
    /// A stream has its status before its outcome.
    has_head: bool,
    is_settled: bool,
}

/// What is known once the request was admitted.
struct Served {
    model: String,
    metrics: ModelMetrics,
    since: Instant,
    has_prompt: bool,
    choices: Vec<Progress>,
    /// Given back when the request ends.
    _place: OwnedSemaphorePermit,
}

/// How far one choice is.
#[derive(Clone, Default)]
struct Progress {
    tokens: u32,
    last_text: Option<Instant>,
}

impl Account {
    /// Opens the account of a request, below the client's span if it names one.
    pub(crate) fn open(metrics: &Metrics, request: RequestId, api: Api, traceparent: Option<&str>) -> Self {
        let operation = match api {
            Api::Chat => "chat",
            Api::Completions => "text_completion",
        };
        let span = tracing::info_span!(
            spans::GATEWAY_REQUEST,
            { attributes::REQUEST_ID } = %request,
            { attributes::OPERATION } = operation,
            { attributes::REQUEST_MODEL } = Empty,
            { attributes::REQUEST_MAX_TOKENS } = Empty,
            { attributes::REQUEST_TEMPERATURE } = Empty,
            { attributes::REQUEST_CHOICES } = Empty,
            { attributes::STREAM } = Empty,
            { attributes::INPUT_TOKENS } = Empty,
            { attributes::OUTPUT_TOKENS } = Empty,
            { attributes::CACHED_TOKENS } = Empty,
            { attributes::FINISH_REASONS } = Empty,
            { attributes::HTTP_STATUS } = Empty,
            { attributes::ERROR_TYPE } = Empty,
        );
        if let Some(traceparent) = traceparent {
            cluster_telemetry::set_parent(&span, traceparent);
        }
        metrics.requests_in_flight().inc();
        Self {
            span,
            metrics: metrics.clone(),
            served: None,
            finish_reasons: String::new(),
            has_head: false,
            is_settled: false,
        }
    }

    pub(crate) fn span(&self) -> &Span {
        &self.span
    }

    /// Notes what was asked for, for the trace.
    pub(crate) fn asked(&self, text: &TextRequest, stream: bool) {
        self.span.record(attributes::REQUEST_MODEL, text.model.as_str());
        self.span
            .record(attributes::REQUEST_TEMPERATURE, f64::from(text.sampling.temperature));
        self.span.record(attributes::REQUEST_CHOICES, text.choices);
        self.span.record(attributes::STREAM, stream);
        if let Some(max) = text.max_tokens {
            self.span.record(attributes::REQUEST_MAX_TOKENS, max);
        }
    }

    /// The request has its place. `since` is when its last byte had come.
    pub(crate) fn admitted(&mut self, model: String, choices: u32, since: Instant, place: OwnedSemaphorePermit) {
        self.served = Some(Served {
            metrics: self.metrics.model(&model),
            model,
            since,
            has_prompt: false,
            choices: vec![Progress::default(); choices as usize],
            _place: place,
        });
    }

    /// Notes a frame that arrived at `now`.
    pub(crate) fn frame(&mut self, frame: &TextFrame, now: Instant) {
        let Some(served) = &mut self.served else { return };
        match frame {
            TextFrame::Admitted { prompt_tokens } => served.prompt(*prompt_tokens),
            TextFrame::Delta { choice, tokens, .. } | TextFrame::ToolCall { choice, tokens, .. } => {
                if served.text(*choice, *tokens, now) {
                    self.span
                        .in_scope(|| tracing::info!(name: events::FIRST_TOKEN, target: targets::MOMENT, "first text"));
                }
            }
            TextFrame::Finished { reason, .. } => self.finished(*reason),
            TextFrame::Usage(usage) => {
                served.totals(usage);
                self.span.record(attributes::INPUT_TOKENS, usage.prompt_tokens);
                self.span.record(attributes::OUTPUT_TOKENS, usage.completion_tokens);
                self.span.record(attributes::CACHED_TOKENS, usage.cached_tokens);
            }
        }
    }

    fn finished(&mut self, reason: FinishReason) {
        let separator = if self.finish_reasons.is_empty() { "" } else { "," };
        let _ = write!(self.finish_reasons, "{separator}{}", reason_name(reason));
    }

    /// A stream's head leaves: whatever comes now, its status is 200.
    pub(crate) fn streams(&mut self) {
        self.has_head = true;
    }

    /// The last byte of a whole answer is written.
    pub(crate) fn succeeded(&mut self) {
        self.span
            .record(attributes::FINISH_REASONS, self.finish_reasons.as_str());
        self.settle(OK, 200);
    }

    /// The request ends with an error, before or after it was admitted.
    pub(crate) fn failed(&mut self, error: &ApiError) {
        self.settle(error.code(), error.status());
    }

    fn settle(&mut self, outcome: &'static str, status: u16) {
        if std::mem::replace(&mut self.is_settled, true) {
            return;
        }
        self.span
            .record(attributes::HTTP_STATUS, if self.has_head { 200 } else { status });
        if outcome != OK {
            self.span.record(attributes::ERROR_TYPE, outcome);
        }
        // A name the client made up must not become a label, so refusals are counted without one.
        match self.served.take() {
            None => self.metrics.request_refused(outcome),
            Some(served) => {
                self.metrics.request_ended(&served.model, outcome);
                served.metrics.end_to_end.observe(served.since.elapsed().as_secs_f64());
            }
        }
    }
}

impl Served {
    fn prompt(&mut self, tokens: u32) {
        if !std::mem::replace(&mut self.has_prompt, true) {
            self.metrics.prompt_tokens.inc_by(tokens.into());
        }
    }

    /// Whether this is the first text of the request.
    fn text(&mut self, choice: u32, tokens: u32, now: Instant) -> bool {
        let is_first = self.choices.iter().all(|choice| choice.tokens == 0);
        let progress = &mut self.choices[choice as usize];
        let new = tokens.saturating_sub(progress.tokens);
        if new == 0 {
            return false;
        }
        progress.tokens = tokens;
        self.metrics.completion_tokens.inc_by(new.into());
        if let Some(last) = progress.last_text {
            let each = (now - last).as_secs_f64() / f64::from(new);
            self.metrics.inter_token.observe(each);
        }
        progress.last_text = Some(now);
        if is_first {
            self.metrics
                .time_to_first_token
                .observe((now - self.since).as_secs_f64());
        }
        is_first
    }

    fn totals(&mut self, usage: &Usage) {
        self.prompt(usage.prompt_tokens);
        self.metrics.cached_tokens.inc_by(usage.cached_tokens.into());
        // Stop tokens have no text and so came with no delta.
        let with_text: u32 = self.choices.iter().map(|choice| choice.tokens).sum();
        let silent = usage.completion_tokens.saturating_sub(with_text);
        self.metrics.completion_tokens.inc_by(silent.into());
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        let left = ApiError::new(Fault::Request(ErrorKind::Cancelled), "");
        self.failed(&left);
        self.metrics.requests_in_flight().dec();
        // A span ends where it was left last: here, not at the first text.
        self.span.in_scope(|| {});
    }
}
