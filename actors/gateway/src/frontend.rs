//! What the gateway asks of the rest of the cluster.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use async_trait::async_trait;
use cluster_messages::{RequestError, TextFrame, TextRequest};
use futures::{Stream, StreamExt};

/// The door behind the gateway.
#[async_trait]
pub trait Frontend: Send + Sync + 'static {
    /// Starts a request. Resolves once it is admitted: what can be refused is refused here, before any text, so that the
    /// client gets a status instead of a broken stream.
    async fn generate(&self, request: TextRequest) -> Result<TextStream, RequestError>;

    /// The models that are served now.
    fn models(&self) -> Arc<[ModelCard]>;

    /// Whether a request would be served now.
    fn ready(&self) -> Readiness;
}

/// What `/v1/models` says about a model.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ModelCard {
    /// The served name.
    pub id: String,
    /// Seconds since 1970.
    pub created: u64,
    /// Who made it or serves it.
    pub owned_by: String,
    /// The longest prompt and answer together, in tokens.
    pub context_max: u32,
    /// The model that stands in for it, when the topology emulates absent hardware.
    pub emulated_by: Option<String>,
    /// Names weights and arithmetic; sent as `system_fingerprint`.
    pub fingerprint: Option<String>,
}

/// Whether requests would be served.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Readiness {
    /// They would.
    Ready,
    /// They would not, and why.
    NotReady(String),
}

/// The frames of one request: `Admitted`, per choice `Delta`s and one `Finished`, then `Usage`, then the end. An error is
/// the last item. Dropping the stream cancels the request.
pub struct TextStream {
    frames: Pin<Box<dyn Stream<Item = Result<TextFrame, RequestError>> + Send>>,
}

impl TextStream {
    /// Wraps the frames of a request. Dropping `frames` must cancel it.
    pub fn new(frames: impl Stream<Item = Result<TextFrame, RequestError>> + Send + 'static) -> Self {
        Self {
            frames: Box::pin(frames),
        }
    }

    /// The next frame.
    pub async fn next(&mut self) -> Option<Result<TextFrame, RequestError>> {
        self.frames.next().await
    }
}

impl Stream for TextStream {
    type Item = Result<TextFrame, RequestError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.frames.as_mut().poll_next(context)
    }
}
