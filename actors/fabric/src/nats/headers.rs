//! Headers as the client writes them. It keeps them in a hash map, so their order by name is made again on arrival.

use std::str::FromStr;

use async_nats::{HeaderMap, HeaderName, HeaderValue};
use bytes::Bytes;

use crate::messaging::{Message, MessagingError};

/// The headers of `message`.
pub(super) fn to_wire(message: &Message) -> Result<HeaderMap, MessagingError> {
    let mut headers = HeaderMap::new();
    for (name, value) in &message.headers {
        let bad = || MessagingError::BadHeader(name.clone());
        let value = HeaderValue::from_str(value).map_err(|_| bad())?;
        let name = HeaderName::from_str(name).map_err(|_| bad())?;
        headers.append(name, value);
    }
    Ok(headers)
}

/// The message that arrived as `headers` and `payload`.
pub(super) fn from_wire(headers: Option<HeaderMap>, payload: Bytes) -> Message {
    let mut pairs = Vec::new();
    for (name, values) in headers.iter().flat_map(HeaderMap::iter) {
        for value in values {
            pairs.push((name.to_string(), value.as_str().to_owned()));
        }
    }
    // The sort is stable: values of one name stay in their order.
    pairs.sort_by(|(one, _), (other, _)| one.cmp(other));
    Message {
        headers: pairs,
        payload,
    }
}
