//! The prefill role: computes a prompt in chunks, pushes each page to the ticket as it is completed, and chooses the first
//! token. It keeps nothing of a request but what its prefix cache keeps.

use std::sync::Arc;

use cluster_engine::{Event, JobKind};
use cluster_fabric::{Request, Sink};
use cluster_messages::{ErrorKind, Header, Prefill, PrefillFrame, RequestError, TokenOut};
use cluster_telemetry::{
    names::{attributes, spans},
    set_parent,
};
use cluster_transfer::{Proof, Pusher};
use tracing::{Instrument, Span, field::Empty};

use crate::{
    engine_host::RunningJob,
    protocol::PrefillProtocol,
    worker::{WorkerParts, WorkerRole},
};

/// One life of a prefill instance.
pub struct Prefiller(WorkerParts);

impl WorkerRole for Prefiller {
    type Protocol = PrefillProtocol;

    fn new(parts: WorkerParts) -> Result<Self, String> {
        Ok(Self(parts))
    }

    async fn serve(self: Arc<Self>, request: Request<PrefillProtocol>) {
        let Request { header, open, respond } = request;
        let Prefill { generation, ticket, .. } = open;
        let (first_page, end_page) = (ticket.first_page, ticket.end_page);
        let pusher = match self.0.life.host.transfer.start(ticket, self.0.engine.info().layout) {
            Ok(pusher) => pusher,
            Err(error) => return respond.refuse(RequestError::new(ErrorKind::Internal, error.to_string())),
        };
        let span = self.span(&header, generation.tokens.len());
        let kind = JobKind::Prefill { first_page, end_page };
        let job = match self.0.engine.submit(generation, kind).await {
            Ok(job) => job,
            Err(error) => return respond.refuse(error),
        };
        let sink = respond.accept(4);
        let stopped = sink.stopped();
        let mut run = Run {
            server: &self,
            job,
            sink,
        };
        let result = tokio::select! {
            result = run.to_the_end(pusher).instrument(span) => result,
            () = stopped => Err(RequestError::new(ErrorKind::Cancelled, "the caller went away")),
        };
        run.sink.finish(result);
    }
}

impl Prefiller {
    fn span(&self, header: &Header, tokens: usize) -> Span {
        let span = tracing::info_span!(
            spans::PREFILL_RUN,
            instance = %self.0.life.instance.path,
            { attributes::INPUT_TOKENS } = tokens,
            { attributes::CACHED_TOKENS } = Empty,
        );
        set_parent(&span, &header.trace.traceparent);
        span
    }
}

/// One prompt on its way.
struct Run<'a> {
    server: &'a Prefiller,
    job: RunningJob,
    sink: Sink<PrefillFrame>,
}

impl Run<'_> {
    async fn to_the_end(&mut self, mut pusher: Pusher) -> Result<(), RequestError> {
        loop {
            match self.job.next().await? {
                Event::Page { page, bytes, .. } => pusher.push(page, bytes).await.map_err(|error| lost(&error))?,
                Event::Prompt { logprobs, .. } => self.send(PrefillFrame::Prompt(logprobs)).await?,
                Event::Lookup { hashes, .. } => {
                    let found = match &self.server.0.tier {
                        Some(tier) => tier.fetch(hashes).await,
                        None => Vec::new(),
                    };
                    self.job.provide(found)?;
                }
                Event::Prefilled {
                    first, cached_tokens, ..
                } => return self.done(pusher, first, cached_tokens).await,
                Event::Failed { error, .. } => return Err(error),
                _ => {}
            }
        }
    }

    async fn done(&mut self, pusher: Pusher, first: TokenOut, cached_tokens: u32) -> Result<(), RequestError> {
        Span::current().record(attributes::CACHED_TOKENS, cached_tokens);
        let proof = pusher.finish().await.map_err(|error| lost(&error))?;
        let Proof { pages, digest } = proof;
        self.send(PrefillFrame::Done {
            first,
            cached_tokens,
            pages,
            digest,
        })
        .await
    }

    async fn send(&mut self, frame: PrefillFrame) -> Result<(), RequestError> {
        let closed = |_| RequestError::new(ErrorKind::Cancelled, "the caller went away");
        self.sink.send(frame).await.map_err(closed)
    }
}

fn lost(error: &dyn std::fmt::Display) -> RequestError {
    RequestError::new(ErrorKind::Lost, error.to_string())
}
