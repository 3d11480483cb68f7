//! The gateway's way in: text requests to a tokenizer.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use async_trait::async_trait;
use cluster_gateway::{Frontend, ModelCard, Readiness, TextStream};
use cluster_messages::{ErrorKind, RequestError, Role, TextRequest};

use crate::{host::Host, protocol::TextProtocol};

/// Tokenizers tried for one request: each was alive when it was looked up.
const TRIES_MAX: usize = 3;

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
        let streams = &self.host.fabric.streams;
        let mut last = None;
        for _ in 0..TRIES_MAX {
            let Some(tokenizer) = self.host.peers.next_of(Role::Tokenizer) else {
                break;
            };
            match streams
                .open::<TextProtocol>(tokenizer, request.header.clone(), request.clone())
                .await
            {
                Ok(stream) => {
                    let frames = futures::stream::unfold(stream, async |mut stream| {
                        let frame = stream.next().await?;
                        Some((frame, stream))
                    });
                    return Ok(TextStream::new(frames));
                }
                Err(error) if error.kind.is_instance_fault() => last = Some(error),
                Err(error) => return Err(error),
            }
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
