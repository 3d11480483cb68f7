//! What may travel between processes, and how it is written: postcard, a compact binary form without field names.
//! Both ends run the same build of the same types; a schema that must outlive a build belongs in protobuf instead.

use bytes::Bytes;
use serde::{Serialize, de::DeserializeOwned};

/// A value that may leave the process. Implemented for everything that qualifies.
pub trait Wire: Serialize + DeserializeOwned + Send + 'static {}

impl<T: Serialize + DeserializeOwned + Send + 'static> Wire for T {}

/// Bytes that are not a value of the expected type, or a value that cannot be written.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{type_name} could not be {action}: {reason}")]
pub struct WireError {
    /// The Rust type concerned.
    pub type_name: &'static str,
    /// `encoded` or `decoded`.
    pub action: &'static str,
    /// What the codec said.
    pub reason: String,
}

/// The bytes of `value`.
pub fn encode<T: Wire>(value: &T) -> Result<Bytes, WireError> {
    let bytes = postcard::to_allocvec(value).map_err(|error| failed::<T>("encoded", &error))?;
    Ok(Bytes::from(bytes))
}

/// The value of `bytes`, all of them.
pub fn decode<T: Wire>(bytes: &[u8]) -> Result<T, WireError> {
    let (value, rest) = postcard::take_from_bytes(bytes).map_err(|error| failed::<T>("decoded", &error))?;
    if rest.is_empty() {
        return Ok(value);
    }
    Err(WireError {
        type_name: std::any::type_name::<T>(),
        action: "decoded",
        reason: format!("{} bytes are left over", rest.len()),
    })
}

fn failed<T>(action: &'static str, error: &postcard::Error) -> WireError {
    WireError {
        type_name: std::any::type_name::<T>(),
        action,
        reason: error.to_string(),
    }
}
