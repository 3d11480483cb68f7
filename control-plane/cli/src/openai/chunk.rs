//! The JSON of the API, as far as a chat needs it.

use hyper::StatusCode;
use serde::Deserialize;

use crate::failure::Failure;

/// A piece of an answer.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Piece {
    /// The next text; may be empty.
    pub(crate) text: String,
    /// Set in the last piece with text.
    pub(crate) finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct Chunk {
    #[serde(default)]
    choices: Vec<Choice>,
    error: Option<ErrorBody>,
}

#[derive(Deserialize)]
struct Choice {
    #[serde(default)]
    delta: Delta,
    finish_reason: Option<String>,
}

#[derive(Deserialize, Default)]
struct Delta {
    content: Option<String>,
}

#[derive(Deserialize)]
struct ErrorBody {
    message: String,
}

#[derive(Deserialize)]
struct Envelope {
    error: ErrorBody,
}

#[derive(Deserialize)]
struct Models {
    data: Vec<Model>,
}

#[derive(Deserialize)]
struct Model {
    id: String,
}

/// One event of the stream. An error event ends the answer.
pub(super) fn piece(event: &str) -> Result<Piece, Failure> {
    let chunk: Chunk =
        serde_json::from_str(event).map_err(|error| Failure::failed(format!("'{event}' is no chunk: {error}")))?;
    if let Some(error) = chunk.error {
        return Err(Failure::failed(error.message));
    }
    Ok(chunk
        .choices
        .into_iter()
        .next()
        .map_or_else(Piece::default, |choice| Piece {
            text: choice.delta.content.unwrap_or_default(),
            finish_reason: choice.finish_reason,
        }))
}

/// The ids in the answer of `/v1/models`.
pub(super) fn model_names(body: &[u8]) -> Result<Vec<String>, Failure> {
    let models: Models = serde_json::from_slice(body)
        .map_err(|error| Failure::failed(format!("the list of models cannot be read: {error}")))?;
    Ok(models.data.into_iter().map(|model| model.id).collect())
}

/// What an answer with an error status says: the envelope's message, or else the status.
pub(super) fn error_message(status: StatusCode, body: &[u8]) -> String {
    match serde_json::from_slice::<Envelope>(body) {
        Ok(envelope) => envelope.error.message,
        Err(_) => format!("the server answered {status}"),
    }
}
