//! The bytes of a request's body, within bounds of size, time and kind.

use std::time::Duration;

use bytes::Bytes;
use cluster_messages::ErrorKind;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::{
    HeaderMap,
    body::Body,
    header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderName},
};

use crate::error::{ApiError, Fault};

/// Refuses what is not plain JSON. A request without a content type is taken at its bytes.
pub(crate) fn check_kind(headers: &HeaderMap) -> Result<(), ApiError> {
    let refuse = |header: HeaderName, found: &[u8], wanted: &str| {
        let found: String = String::from_utf8_lossy(found).chars().take(100).collect();
        let message = format!("{header} is '{found}'; send {wanted}");
        Err(ApiError::new(Fault::MediaType, message))
    };
    if let Some(kind) = headers.get(CONTENT_TYPE)
        && !is_json(kind.as_bytes())
    {
        return refuse(CONTENT_TYPE, kind.as_bytes(), "application/json");
    }
    match headers.get(CONTENT_ENCODING) {
        Some(encoding) if encoding != "identity" => refuse(CONTENT_ENCODING, encoding.as_bytes(), "the body as it is"),
        _ => Ok(()),
    }
}

fn is_json(kind: &[u8]) -> bool {
    let essence = kind.split(|byte| *byte == b';').next().unwrap_or_default();
    essence.trim_ascii().eq_ignore_ascii_case(b"application/json")
}

/// Reads at most `bytes_max` bytes within `time`.
pub(crate) async fn read<B>(body: B, bytes_max: usize, time: Duration) -> Result<Bytes, ApiError>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    // A declared length is refused before a byte of it is read.
    if body.size_hint().lower() > bytes_max as u64 {
        return Err(too_large(bytes_max));
    }
    let collected = tokio::time::timeout(time, Limited::new(body, bytes_max).collect());
    match collected.await {
        Ok(Ok(whole)) => Ok(whole.to_bytes()),
        Ok(Err(error)) if is_length(&*error) => Err(too_large(bytes_max)),
        Ok(Err(_)) => Err(ApiError::new(
            Fault::Request(ErrorKind::Invalid),
            "the body ended before its announced length",
        )),
        Err(_) => {
            let message = format!("the body did not arrive within {} s", time.as_secs());
            Err(ApiError::new(Fault::BodyTimeout, message))
        }
    }
}

fn is_length(error: &(dyn std::error::Error + Send + Sync + 'static)) -> bool {
    error.is::<LengthLimitError>() || error.source().is_some_and(|source| source.is::<LengthLimitError>())
}

fn too_large(bytes_max: usize) -> ApiError {
    let message = format!(
        "the body, files in it included, is longer than {bytes_max} bytes; send less, or raise limits.body_max"
    );
    ApiError::new(Fault::BodyTooLarge, message)
}
