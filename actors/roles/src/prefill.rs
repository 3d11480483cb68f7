//! The prefill role: computes a prompt in chunks, pushes each page to the ticket as it is completed, and chooses the first
//! token. It keeps nothing of a request but what its prefix cache keeps.

use std::sync::Arc;

use cluster_engine::{Event, JobKind};
use cluster_fabric::{Request, Sink};
use cluster_messages::{Header, Prefill, PrefillFrame, RequestError, TokenOut};
use cluster_telemetry::{
    names::{attributes, spans},
    set_parent,
};
use cluster_transfer::{Proof, Pusher};
use tracing::{Span, field::Empty};

use crate::{
    engine_host::RunningJob,
    failure::{self, Phase},
    protocol::PrefillProtocol,
    service::admit,
    worker::{MediaPrompt, WorkerParts, WorkerRole},
};

/// The scores of the prompt, and the end: nothing else is sent.
const FRAMES_MAX: usize = 4;

/// One life of a prefill instance.
pub struct Prefiller(WorkerParts);

impl WorkerRole for Prefiller {
    type Protocol = PrefillProtocol;

    fn new(parts: WorkerParts) -> Result<Self, String> {
        Ok(Self(parts))
    }

    async fn serve(self: Arc<Self>, request: Request<PrefillProtocol>) {
        let Request { header, open, respond } = request;
        let phase = Phase::new(self.span(&header, open.generation.tokens.len()));
        let media = open.generation.media.clone();
        let ((job, pusher), sink) = match admit(respond, FRAMES_MAX, self.begin(open)).await {
            Ok(admitted) => admitted,
            Err(error) => return phase.end::<()>(&Err(error)),
        };
        let stopped = sink.stopped();
        let mut run = Run {
            parts: &self.0,
            job,
            sink,
            span: phase.span(),
            prompt: MediaPrompt {
                media: &media,
                header: &header,
            },
        };
        let result = tokio::select! {
            result = run.run_to_end(pusher) => result,
            () = stopped => Err(run.closed()),
        };
        let Run { job, mut sink, .. } = run;
        drop(job);
        phase.end(&result);
        let end = match result {
            Ok(last) => {
                let closed = |_| failure::closed(&*self.0.life.host.fabric.clock, header.deadline);
                sink.send(last).await.map_err(closed)
            }
            Err(error) => Err(error),
        };
        sink.finish(end);
    }
}

impl Prefiller {
    fn span(&self, header: &Header, tokens: usize) -> Span {
        let span = tracing::info_span!(
            spans::PREFILL_RUN,
            instance = %self.0.life.instance.path,
            { attributes::INPUT_TOKENS } = tokens,
            { attributes::CACHED_TOKENS } = Empty,
            { attributes::ERROR_TYPE } = Empty,
        );
        set_parent(&span, &header.trace.traceparent);
        span
    }

    async fn begin(&self, open: Prefill) -> Result<(RunningJob, Pusher), RequestError> {
        let Prefill { generation, ticket, .. } = open;
        let kind = JobKind::Prefill {
            first_page: ticket.first_page,
            end_page: ticket.end_page,
        };
        let pusher = self.0.life.host.transfer.start(ticket, self.0.engine.info().layout)?;
        let job = self.0.engine.submit(generation, kind).await?;
        Ok((job, pusher))
    }
}

/// One prompt on its way.
struct Run<'a> {
    parts: &'a WorkerParts,
    job: RunningJob,
    sink: Sink<PrefillFrame>,
    span: &'a Span,
    prompt: MediaPrompt<'a>,
}

impl Run<'_> {
    /// Computes and pushes until nothing is left; the last frame is the caller's to send.
    async fn run_to_end(&mut self, mut pusher: Pusher) -> Result<PrefillFrame, RequestError> {
        loop {
            match self.job.next().await? {
                Event::Page { page, bytes, .. } => pusher.push(page, bytes).await?,
                Event::Prompt { logprobs, .. } => self.send(PrefillFrame::Prompt(logprobs)).await?,
                Event::Lookup { hashes, .. } => self.parts.look_up(&self.job, hashes).await?,
                Event::Features { media, .. } => {
                    let features = &self.parts.features;
                    features.supply(&self.job, &media, &self.prompt, self.span).await?;
                }
                Event::Prefilled {
                    first, cached_tokens, ..
                } => return self.done(pusher, first, cached_tokens).await,
                Event::Failed { error, .. } => return Err(error),
                // What is found is told at the end.
                Event::Admitted { .. } => {}
                // Those of other kinds of job, and those of no job.
                Event::Reserved { .. }
                | Event::Tokens { .. }
                | Event::Finished { .. }
                | Event::Stored(_)
                | Event::Removed(_)
                | Event::Evicted { .. } => {}
            }
        }
    }

    async fn done(&self, pusher: Pusher, first: TokenOut, cached_tokens: u32) -> Result<PrefillFrame, RequestError> {
        self.span.record(attributes::CACHED_TOKENS, cached_tokens);
        let Proof { pages, digest } = pusher.finish().await?;
        Ok(PrefillFrame::Done {
            first,
            cached_tokens,
            pages,
            digest,
        })
    }

    async fn send(&mut self, frame: PrefillFrame) -> Result<(), RequestError> {
        let sent = self.sink.send(frame).await;
        sent.map_err(|_| self.closed())
    }

    fn closed(&self) -> RequestError {
        failure::closed(&*self.parts.life.host.fabric.clock, self.prompt.header.deadline)
    }
}
