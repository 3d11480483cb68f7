//! The one table of refusals, and OpenAI's error envelope around them.
//!
//! | fault | status | type |
//! |---|---|---|
//! | a wrong request, a prompt too long | 400 | `invalid_request_error` |
//! | an unknown model or path | 404 | `invalid_request_error` |
//! | a wrong method, a slow or large body, a wrong media type | 405, 408, 413, 415 | `invalid_request_error` |
//! | the caller's share is used up | 429 | `rate_limit_error` |
//! | the caller went away | 499 | `cancelled_error` |
//! | a defect | 500 | `server_error` |
//! | full, nobody there, an instance lost | 503 | `server_error` |
//! | the deadline passed | 504 | `server_error` |

use bytes::Bytes;
use cluster_messages::{ErrorKind, RequestError};
use hyper::{
    HeaderMap, Response,
    header::{ALLOW, CONTENT_TYPE, HeaderValue, RETRY_AFTER},
};
use serde::Serialize;

use crate::response::{Body, JSON, status};

/// Everything that can be wrong: with the HTTP request, or with what it asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    RouteNotFound,
    MethodNotAllowed,
    BodyTimeout,
    BodyTooLarge,
    MediaType,
    Request(ErrorKind),
}

struct Row {
    status: u16,
    class: &'static str,
    code: &'static str,
}

const CLIENT: &str = "invalid_request_error";
const SERVER: &str = "server_error";

impl Fault {
    const fn row(self) -> Row {
        let (status, class, code) = match self {
            Fault::RouteNotFound => (404, CLIENT, "route_not_found"),
            Fault::MethodNotAllowed => (405, CLIENT, "method_not_allowed"),
            Fault::BodyTimeout => (408, CLIENT, "request_timeout"),
            Fault::BodyTooLarge => (413, CLIENT, "body_too_large"),
            Fault::MediaType => (415, CLIENT, "unsupported_media_type"),
            Fault::Request(kind) => match kind {
                ErrorKind::Invalid | ErrorKind::ContextLength => (400, CLIENT, kind.code()),
                ErrorKind::ModelNotFound => (404, CLIENT, kind.code()),
                ErrorKind::RateLimited => (429, "rate_limit_error", kind.code()),
                ErrorKind::Cancelled => (499, "cancelled_error", kind.code()),
                ErrorKind::Internal => (500, SERVER, kind.code()),
                ErrorKind::Overloaded | ErrorKind::Unavailable | ErrorKind::Lost => (503, SERVER, kind.code()),
                ErrorKind::Deadline => (504, SERVER, kind.code()),
            },
        };
        Row { status, class, code }
    }

    /// What to wait when whoever refused did not say: whatever may pass by itself is worth another try.
    const fn retry_after_ms(self) -> Option<u32> {
        match self {
            Fault::Request(
                ErrorKind::RateLimited | ErrorKind::Overloaded | ErrorKind::Unavailable | ErrorKind::Lost,
            ) => Some(1000),
            _ => None,
        }
    }
}

/// A refusal on its way to the client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ApiError {
    pub(crate) fault: Fault,
    pub(crate) message: String,
    pub(crate) param: Option<String>,
    pub(crate) retry_after_ms: Option<u32>,
    /// The methods a path does answer.
    pub(crate) allow: Option<&'static str>,
}

#[derive(Serialize)]
struct Envelope<'a> {
    error: Inner<'a>,
}

#[derive(Serialize)]
struct Inner<'a> {
    message: &'a str,
    r#type: &'a str,
    param: Option<&'a str>,
    code: &'a str,
}

impl ApiError {
    pub(crate) fn new(fault: Fault, message: impl Into<String>) -> Self {
        Self {
            fault,
            message: message.into(),
            param: None,
            retry_after_ms: None,
            allow: None,
        }
    }

    /// A wrong value of the field `param`. The message names the field too, for those who read only it.
    pub(crate) fn invalid(param: impl Into<String>, rule: impl AsRef<str>) -> Self {
        let param = param.into();
        let message = format!("{param}: {}", rule.as_ref());
        Self {
            param: Some(param),
            ..Self::new(Fault::Request(ErrorKind::Invalid), message)
        }
    }

    pub(crate) fn status(&self) -> u16 {
        self.fault.row().status
    }

    pub(crate) fn code(&self) -> &'static str {
        self.fault.row().code
    }

    /// The envelope: the body of an answer, or the payload of a stream's last event.
    pub(crate) fn json(&self) -> Vec<u8> {
        let row = self.fault.row();
        let envelope = Envelope {
            error: Inner {
                message: &self.message,
                r#type: row.class,
                param: self.param.as_deref(),
                code: row.code,
            },
        };
        serde_json::to_vec(&envelope).expect("strings always serialize")
    }

    pub(crate) fn response(&self) -> Response<Body> {
        let mut response = Response::new(Body::whole(Bytes::from(self.json())));
        *response.status_mut() = status(self.status());
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, JSON);
        self.insert_headers(headers);
        response
    }

    fn insert_headers(&self, headers: &mut HeaderMap) {
        if let Some(allow) = self.allow {
            headers.insert(ALLOW, HeaderValue::from_static(allow));
        }
        if let Some(wait_ms) = self.retry_after_ms.or(self.fault.retry_after_ms()) {
            // The header counts whole seconds; less than one would invite an immediate retry.
            let seconds = wait_ms.div_ceil(1000).max(1);
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
    }
}

impl From<RequestError> for ApiError {
    fn from(error: RequestError) -> Self {
        Self {
            param: error.param,
            retry_after_ms: error.retry_after_ms,
            ..Self::new(Fault::Request(error.kind), error.message)
        }
    }
}

#[cfg(test)]
mod tests;
