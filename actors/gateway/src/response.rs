//! The two kinds of answers, and how their heads look.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Response, StatusCode,
    body::{Frame, SizeHint},
    header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue},
};
use serde::Serialize;

use crate::events::EventStream;

pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/json");
const OPEN_METRICS: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
const EVENT_STREAM: HeaderValue = HeaderValue::from_static("text/event-stream; charset=utf-8");

/// The body of an answer.
pub struct Body(Kind);

enum Kind {
    Whole(Full<Bytes>),
    Events(Box<EventStream>),
}

impl Body {
    pub(crate) fn whole(bytes: Bytes) -> Self {
        Self(Kind::Whole(Full::new(bytes)))
    }
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut self.0 {
            Kind::Whole(body) => Pin::new(body).poll_frame(context),
            Kind::Events(stream) => stream
                .poll_bytes(context)
                .map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Whole(body) => body.is_end_stream(),
            Kind::Events(stream) => stream.is_over(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Whole(body) => body.size_hint(),
            Kind::Events(_) => SizeHint::default(),
        }
    }
}

/// A status of the error table.
pub(crate) fn status(code: u16) -> StatusCode {
    StatusCode::from_u16(code).expect("the tables hold three-digit numbers")
}

pub(crate) fn json(value: &impl Serialize) -> Response<Body> {
    let bytes = serde_json::to_vec(value).expect("our own types have string keys and finite numbers");
    typed(JSON, Bytes::from(bytes))
}

pub(crate) fn metrics(page: String) -> Response<Body> {
    typed(OPEN_METRICS, Bytes::from(page))
}

pub(crate) fn events(stream: EventStream) -> Response<Body> {
    let mut response = Response::new(Body(Kind::Events(Box::new(stream))));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, EVENT_STREAM);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Proxies of the nginx kind would otherwise collect the stream before passing it on.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

fn typed(kind: HeaderValue, bytes: Bytes) -> Response<Body> {
    let mut response = Response::new(Body::whole(bytes));
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}
