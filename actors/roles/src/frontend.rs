//! The gateway's way in: text requests to a tokenizer.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use cluster_gateway::{Frontend, ModelCard, Readiness, TextStream};
use cluster_messages::{ErrorKind, RequestError, Role, TextRequest};

use crate::{host::Host, protocol::TextProtocol};

/// How long the news that a tokenizer died may take to arrive after its streams have ended.
const NEWS_MAX: Duration = Duration::from_millis(100);

/// The cluster behind the gateway.
pub struct ClusterFrontend {
    host: Host,
    models: Arc<[ModelCard]>,
    /// Set when a synthetic token went through every role.
    proven: AtomicBool,
}

impl ClusterFrontend {
    /// A frontend that is not ready until `set_proven`.
    pub fn new(host: Host, models: Arc<[ModelCard]>) -> Self {
        Self {
            host,
            models,
            proven: AtomicBool::new(false),
        }
    }

    /// A token went through every role.
    pub fn set_proven(&self) {
        self.proven.store(true, Ordering::Relaxed);
    }
}

#[async_trait]
impl Frontend for ClusterFrontend {
    async fn generate(&self, request: TextRequest) -> Result<TextStream, RequestError> {
        let (streams, peers) = (&self.host.fabric.streams, &self.host.peers);
        let mut asked = Vec::new();
        let mut last = None;
        while let Some(tokenizer) = peers.next_but(Role::Tokenizer, &asked) {
            asked.push(tokenizer);
            let opened = streams.open::<TextProtocol>(tokenizer, request.header.clone(), request.clone());
            let error = match opened.await {
                Ok(stream) => {
                    let frames = futures::stream::unfold(stream, async |mut stream| {
                        let frame = stream.next().await?;
                        Some((frame, stream))
                    });
                    return Ok(TextStream::new(frames));
                }
                Err(error) => error,
            };
            // What a living tokenizer says is the answer, be it about another instance: it has tried what makes sense.
            if !error.kind.is_instance_fault() || !peers.is_gone(tokenizer, NEWS_MAX).await {
                return Err(error);
            }
            last = Some(error);
        }
        let nobody = || RequestError::new(ErrorKind::Unavailable, "no tokenizer is registered");
        Err(last.unwrap_or_else(nobody).retry_after(1000))
    }

    fn models(&self) -> Arc<[ModelCard]> {
        self.models.clone()
    }

    fn ready(&self) -> Readiness {
        if self.proven.load(Ordering::Relaxed) {
            return Readiness::Ready;
        }
        Readiness::NotReady("no token has gone through every role yet".into())
    }
}
