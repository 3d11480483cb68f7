//! The paths the gateway answers, in one table.

use hyper::Method;

use crate::error::{ApiError, Fault};

/// The two shapes in which text is asked for and answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Api {
    Chat,
    Completions,
}

/// What stands behind a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Endpoint<'a> {
    Generate(Api),
    Models,
    Model(&'a str),
    Health,
    Ready,
    Metrics,
}

const MODEL_PREFIX: &str = "/v1/models/";

/// The endpoint of a path, whatever the method.
fn endpoint_at(path: &str) -> Option<Endpoint<'_>> {
    Some(match path {
        "/v1/chat/completions" => Endpoint::Generate(Api::Chat),
        "/v1/completions" => Endpoint::Generate(Api::Completions),
        "/v1/models" => Endpoint::Models,
        "/health" => Endpoint::Health,
        "/ready" => Endpoint::Ready,
        "/metrics" => Endpoint::Metrics,
        // Served names may contain slashes.
        _ => Endpoint::Model(path.strip_prefix(MODEL_PREFIX).filter(|id| !id.is_empty())?),
    })
}

impl Endpoint<'_> {
    const fn methods(self) -> &'static str {
        match self {
            Endpoint::Generate(_) => "POST",
            _ => "GET, HEAD",
        }
    }
}

/// The endpoint of a request, or why there is none: 404 or 405.
pub(crate) fn find<'a>(method: &Method, path: &'a str) -> Result<Endpoint<'a>, ApiError> {
    let endpoint = endpoint_at(path).ok_or_else(|| {
        let message = format!("no endpoint {method} {path}; see /v1/models, /v1/chat/completions, /v1/completions");
        ApiError::new(Fault::RouteNotFound, message)
    })?;
    let allowed = endpoint.methods();
    if allowed.split(", ").any(|name| name == method.as_str()) {
        return Ok(endpoint);
    }
    let message = format!("{path} answers {allowed}, not {method}");
    Err(ApiError {
        allow: Some(allowed),
        ..ApiError::new(Fault::MethodNotAllowed, message)
    })
}
