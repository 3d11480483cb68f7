//! The errors that roles make themselves, and how the span of a phase hears of them.

use std::fmt::Display;

use cluster_fabric::Clock;
use cluster_messages::{Deadline, ErrorKind, RequestError};
use cluster_telemetry::names::attributes;
use tracing::Span;

#[cfg(test)]
mod tests;

/// An instance, or the way to it, ended under a request; another one can go on.
pub(crate) fn lost(reason: impl Display) -> RequestError {
    RequestError::new(ErrorKind::Lost, reason.to_string())
}

/// Nobody reads the answer any longer: the deadline passed, or the reader left before it.
pub(crate) fn closed(clock: &dyn Clock, deadline: Deadline) -> RequestError {
    if clock.remaining(deadline).is_zero() {
        return RequestError::new(
            ErrorKind::Deadline,
            "the deadline passed before the answer was complete",
        );
    }
    RequestError::new(ErrorKind::Cancelled, "the caller went away")
}

/// Writes into `span` what its phase failed with. A reader that had enough is no failure: a stop string ends a run so.
pub(crate) fn note<T>(span: &Span, result: &Result<T, RequestError>) {
    if let Err(error) = result
        && error.kind != ErrorKind::Cancelled
    {
        span.record(attributes::ERROR_TYPE, error.kind.code());
    }
}

/// A span that says how its phase ended. Dropped in the middle, it says that the instance was lost: a request's task is
/// dropped only with its actor.
pub(crate) struct Phase {
    span: Span,
    has_ended: bool,
}

impl Phase {
    /// `span` must have a field for `attributes::ERROR_TYPE`.
    pub(crate) fn new(span: Span) -> Self {
        Self { span, has_ended: false }
    }

    pub(crate) fn span(&self) -> &Span {
        &self.span
    }

    /// Ends the phase, and the span unless somebody else holds it.
    pub(crate) fn end<T>(mut self, result: &Result<T, RequestError>) {
        note(&self.span, result);
        self.has_ended = true;
    }
}

impl Drop for Phase {
    fn drop(&mut self) {
        if !self.has_ended {
            self.span.record(attributes::ERROR_TYPE, ErrorKind::Lost.code());
        }
    }
}
