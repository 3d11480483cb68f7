//! Why a request ended without an answer, in words a client can act on.

use serde::{Deserialize, Serialize};

use crate::InstanceRef;

/// What the receiver of an error can do about it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum ErrorKind {
    /// The request is wrong; sending it again changes nothing.
    Invalid,
    /// Prompt and answer do not fit the model's context.
    ContextLength,
    /// No model of that name is served.
    ModelNotFound,
    /// The caller's own share is used up; try again later.
    RateLimited,
    /// Every place is taken; try again later.
    Overloaded,
    /// No instance can serve now; try again later.
    Unavailable,
    /// The deadline passed.
    Deadline,
    /// The caller went away.
    Cancelled,
    /// The instance died or was replaced while it worked; another can continue.
    Lost,
    /// A defect of ours.
    Internal,
}

impl ErrorKind {
    /// Whether the same work may succeed on another instance. Client errors never do, and say nothing about the instance.
    pub const fn is_instance_fault(self) -> bool {
        matches!(self, ErrorKind::Lost | ErrorKind::Unavailable | ErrorKind::Internal)
    }

    /// The name in logs, metrics and the API's `code` field.
    pub const fn code(self) -> &'static str {
        match self {
            ErrorKind::Invalid => "invalid_request",
            ErrorKind::ContextLength => "context_length_exceeded",
            ErrorKind::ModelNotFound => "model_not_found",
            ErrorKind::RateLimited => "rate_limit_exceeded",
            ErrorKind::Overloaded => "overloaded",
            ErrorKind::Unavailable => "unavailable",
            ErrorKind::Deadline => "deadline_exceeded",
            ErrorKind::Cancelled => "cancelled",
            ErrorKind::Lost => "instance_lost",
            ErrorKind::Internal => "internal_error",
        }
    }
}

/// The one way a request ends badly.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
#[error("{}: {message}", kind.code())]
pub struct RequestError {
    /// What to do about it.
    pub kind: ErrorKind,
    /// Lower case, with the values involved, without a final period, nothing of the inside.
    pub message: String,
    /// The field of the client's request that caused it.
    pub param: Option<String>,
    /// When to try again.
    pub retry_after_ms: Option<u32>,
    /// The instance to be avoided, where it is another one than the one that says so.
    pub culprit: Option<InstanceRef>,
}

impl RequestError {
    /// An error of `kind` that names no field.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            param: None,
            retry_after_ms: None,
            culprit: None,
        }
    }

    /// A wrong value of the request's field `param`.
    pub fn invalid(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            param: Some(param.into()),
            ..Self::new(ErrorKind::Invalid, message)
        }
    }

    /// The same error with the advice to come back after `retry_after_ms`.
    pub fn retry_after(self, retry_after_ms: u32) -> Self {
        Self {
            retry_after_ms: Some(retry_after_ms),
            ..self
        }
    }

    /// The same error, of which `instance` is the cause.
    pub fn caused_by(self, instance: InstanceRef) -> Self {
        Self {
            culprit: Some(instance),
            ..self
        }
    }
}
