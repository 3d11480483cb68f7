//! The decode role: owns a request on the workers' side, from its reserved blocks to its last token. With prefill folded in
//! it computes the prompt itself; otherwise it hands out a ticket for the pages it lacks and starts when all have arrived.

use std::sync::Arc;

use cluster_engine::{Event, JobKind};
use cluster_fabric::{Request, Sink};
use cluster_messages::{
    ErrorKind, Generate, GenerateFrame, Generation, Header, InstanceRef, Prefill, PrefillFrame, RequestError, Ticket,
    TokenOut,
};
use cluster_telemetry::{
    names::{attributes, spans},
    set_parent,
};
use cluster_transfer::{Inbox, Tickets};
use tracing::{Instrument, Span, field::Empty};

use crate::{
    engine_host::RunningJob,
    protocol::{GenerateProtocol, PrefillProtocol},
    tokenizer::context_of,
    worker::{Tier, WorkerParts, WorkerRole},
};

/// Frames that may wait for the tokenizer.
const FRAMES_MAX: usize = 64;
/// Pages that may wait to be taken into the engine, per request.
const PAGES_MAX: usize = 16;

/// One life of a decode instance.
pub struct Decode {
    parts: WorkerParts,
    tickets: Tickets,
}

impl WorkerRole for Decode {
    type Protocol = GenerateProtocol;

    fn new(parts: WorkerParts) -> Result<Self, String> {
        let owner = parts.life.host.exchange.owner(parts.life.instance);
        let tickets = owner.map_err(|error| error.to_string())?;
        Ok(Self { parts, tickets })
    }

    async fn serve(self: Arc<Self>, request: Request<GenerateProtocol>) {
        let Request { header, open, respond } = request;
        let Generate {
            generation, prefill, ..
        } = open;
        let span = self.span(&header, &generation);
        let kind = if prefill.is_some() {
            JobKind::Decode
        } else {
            JobKind::Whole
        };
        let job = match self.parts.engine.submit(generation.clone(), kind).await {
            Ok(job) => job,
            Err(error) => return respond.refuse(error),
        };
        let sink = respond.accept(FRAMES_MAX);
        let stopped = sink.stopped();
        let mut relay = Relay {
            job,
            sink,
            tier: self.parts.tier.as_ref(),
            span: span.clone(),
        };
        let work = async {
            if let Some(prefill) = prefill {
                let first = self
                    .fetch_prompt(&mut relay, prefill, &header, generation)
                    .instrument(span.clone())
                    .await?;
                relay.begin_with(first).await?;
            }
            relay.to_the_end().await
        };
        let result = tokio::select! {
            result = work => result,
            () = stopped => Err(cancelled()),
        };
        relay.sink.finish(result);
    }
}

impl Decode {
    fn span(&self, header: &Header, generation: &Generation) -> Span {
        let span = tracing::info_span!(
            spans::DECODE_RUN,
            instance = %self.parts.life.instance.path,
            { attributes::INPUT_TOKENS } = generation.tokens.len(),
            { attributes::CACHED_TOKENS } = Empty,
            { attributes::OUTPUT_TOKENS } = Empty,
        );
        set_parent(&span, &header.trace.traceparent);
        span
    }

    /// Has the prompt computed elsewhere and its pages brought here.
    async fn fetch_prompt(
        &self,
        relay: &mut Relay<'_>,
        prefill: InstanceRef,
        header: &Header,
        generation: Generation,
    ) -> Result<FirstToken, RequestError> {
        let (first_page, end_page) = relay.reserved().await?;
        let fabric = &self.parts.life.host.fabric;
        let ticket = Ticket {
            id: fabric.entropy.ticket_id(),
            owner: self.parts.life.instance,
            first_page,
            end_page,
            layout: self.parts.engine.info().layout,
            deadline: header.deadline,
        };
        // Our end of the ticket closes with `inbox`, however this ends; a page that comes later is refused.
        let inbox = self
            .tickets
            .open(ticket.clone(), PAGES_MAX)
            .map_err(|error| lost(&error))?;
        let span = tracing::info_span!(
            spans::KV_TRANSFER,
            instance = %self.parts.life.instance.path,
            from = %prefill.path,
            { attributes::KV_PAGES } = end_page - first_page,
            { attributes::KV_BYTES } = Empty,
        );
        let header = Header {
            trace: context_of(&relay.span),
            ..header.clone()
        };
        let request = Prefill {
            header: header.clone(),
            generation,
            ticket,
        };
        let pages = fabric.streams.open::<PrefillProtocol>(prefill, header, request).await?;
        gather(relay, pages, inbox).instrument(span).await
    }
}

/// The first token, and how the prompt came about.
struct FirstToken {
    token: TokenOut,
    cached_tokens: u32,
    prompt: Option<GenerateFrame>,
}

/// Takes pages as they come, until prefill says that it is done and the inbox agrees that nothing is missing.
async fn gather(
    relay: &Relay<'_>,
    mut frames: cluster_fabric::Stream<PrefillFrame>,
    mut inbox: Inbox,
) -> Result<FirstToken, RequestError> {
    let (mut prompt, mut first, mut bytes) = (None, None, 0u64);
    loop {
        tokio::select! {
            arrived = inbox.next() => match arrived.map_err(|error| lost(&error))? {
                Some(page) => {
                    bytes += page.bytes.len() as u64;
                    relay.job.import(page.page, page.bytes)?;
                }
                // Complete: count and digest agree with what the sender said.
                None => break,
            },
            frame = frames.next(), if first.is_none() => match frame {
                Some(Ok(PrefillFrame::Prompt(entries))) => prompt = Some(GenerateFrame::Prompt(entries)),
                Some(Ok(PrefillFrame::Done { first: token, cached_tokens, .. })) => first = Some((token, cached_tokens)),
                Some(Err(error)) => return Err(error),
                None => return Err(lost(&"the prefill stream ended early")),
            },
        }
    }
    let (token, cached_tokens) = match first {
        Some(first) => first,
        None => done_frame(&mut frames).await?,
    };
    Span::current().record(attributes::KV_BYTES, bytes);
    Ok(FirstToken {
        token,
        cached_tokens,
        prompt,
    })
}

async fn done_frame(frames: &mut cluster_fabric::Stream<PrefillFrame>) -> Result<(TokenOut, u32), RequestError> {
    while let Some(frame) = frames.next().await {
        if let PrefillFrame::Done {
            first, cached_tokens, ..
        } = frame?
        {
            return Ok((first, cached_tokens));
        }
    }
    Err(lost(&"the prefill stream ended without a first token"))
}

/// A job's events on their way into a stream.
struct Relay<'a> {
    job: RunningJob,
    sink: Sink<GenerateFrame>,
    tier: Option<&'a Tier>,
    span: Span,
}

impl Relay<'_> {
    /// Waits until the job has its blocks; returns the pages it lacks.
    async fn reserved(&mut self) -> Result<(u32, u32), RequestError> {
        loop {
            match self.job.next().await? {
                Event::Reserved {
                    first_page, end_page, ..
                } => return Ok((first_page, end_page)),
                Event::Failed { error, .. } => return Err(error),
                event => self.side_event(event).await?,
            }
        }
    }

    async fn begin_with(&mut self, first: FirstToken) -> Result<(), RequestError> {
        let FirstToken {
            token,
            cached_tokens,
            prompt,
        } = first;
        self.job.start(token, cached_tokens)?;
        self.started(cached_tokens).await?;
        match prompt {
            Some(frame) => self.send(frame).await,
            None => Ok(()),
        }
    }

    async fn to_the_end(&mut self) -> Result<(), RequestError> {
        let mut tokens = Vec::new();
        loop {
            let mut event = Some(self.job.next().await?);
            // Tokens that are there already travel in one frame.
            while let Some(Event::Tokens { tokens: more, .. }) = event {
                tokens.extend(more);
                event = self.job.ready();
            }
            if !tokens.is_empty() {
                self.send(GenerateFrame::Tokens(std::mem::take(&mut tokens))).await?;
            }
            match event {
                None => {}
                Some(Event::Prompt { logprobs, .. }) => self.send(GenerateFrame::Prompt(logprobs)).await?,
                Some(Event::Failed { error, .. }) => return Err(error),
                Some(Event::Finished { reason, usage, .. }) => {
                    self.span.record(attributes::OUTPUT_TOKENS, usage.completion_tokens);
                    return self.send(GenerateFrame::Finished { reason, usage }).await;
                }
                Some(event) => self.side_event(event).await?,
            }
        }
    }

    /// Events that are not for the client's eyes.
    async fn side_event(&mut self, event: Event) -> Result<(), RequestError> {
        match event {
            Event::Admitted { cached_tokens, .. } => self.started(cached_tokens).await,
            Event::Lookup { hashes, .. } => {
                let pages = match self.tier {
                    Some(tier) => tier.fetch(hashes).await,
                    None => Vec::new(),
                };
                self.job.provide(pages)
            }
            _ => Ok(()),
        }
    }

    async fn started(&mut self, cached_tokens: u32) -> Result<(), RequestError> {
        self.span.record(attributes::CACHED_TOKENS, cached_tokens);
        self.send(GenerateFrame::Started { cached_tokens }).await
    }

    async fn send(&mut self, frame: GenerateFrame) -> Result<(), RequestError> {
        self.sink.send(frame).await.map_err(|_| cancelled())
    }
}

fn cancelled() -> RequestError {
    RequestError::new(ErrorKind::Cancelled, "the caller went away")
}

fn lost(error: &dyn std::fmt::Display) -> RequestError {
    RequestError::new(ErrorKind::Lost, error.to_string())
}
