//! The decode role: owns a request on the workers' side, from its reserved blocks to its last token. With prefill folded in
//! it computes the prompt itself; otherwise it hands out a ticket for the pages it lacks and starts when all have arrived.

use std::sync::Arc;

use cluster_engine::JobKind;
use cluster_fabric::{Request, Stream};
use cluster_messages::{
    Generate, GenerateFrame, Generation, Header, InstanceRef, Prefill, PrefillFrame, RequestError, Ticket, TokenOut,
};
use cluster_telemetry::{
    add_link,
    names::{attributes, spans},
    set_parent,
};
use cluster_transfer::{Inbox, Tickets};
use tracing::{Span, field::Empty};

use self::relay::{Relay, Reserved};
use crate::{
    failure::{self, Phase},
    protocol::{GenerateProtocol, PrefillProtocol},
    service::admit,
    tokenizer::context_of,
    worker::{MediaPrompt, WorkerParts, WorkerRole},
};

mod relay;

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
        let phase = Phase::new(self.span(&header, &open));
        let Generate {
            generation, prefill, ..
        } = open;
        let kind = if prefill.is_some() {
            JobKind::Decode
        } else {
            JobKind::Whole
        };
        let submit = self.parts.engine.submit(generation.clone(), kind);
        let (job, sink) = match admit(respond, FRAMES_MAX, submit).await {
            Ok(admitted) => admitted,
            Err(error) => return phase.end::<()>(&Err(error)),
        };
        let closed = || failure::closed(&*self.parts.life.host.fabric.clock, header.deadline);
        let stopped = sink.stopped();
        let media = generation.media.clone();
        let prompt = MediaPrompt {
            media: &media,
            header: &header,
        };
        let mut relay = Relay::new(&self.parts, job, sink, phase, prompt);
        if prefill.is_none() {
            relay = relay.computing_the_prompt();
        }
        let result = tokio::select! {
            result = self.run(&mut relay, prefill, &header, generation) => result,
            () = stopped => Err(closed()),
        };
        // The run is over before anybody hears of it: whoever reads the trace after the answer finds it there.
        let mut sink = relay.end(&result);
        let end = match result {
            Ok(last) => sink.send(last).await.map_err(|_| closed()),
            Err(error) => Err(error),
        };
        sink.finish(end);
    }
}

impl Decode {
    fn span(&self, header: &Header, open: &Generate) -> Span {
        let span = tracing::info_span!(
            spans::DECODE_RUN,
            instance = %self.parts.life.instance.path,
            { attributes::INPUT_TOKENS } = open.generation.tokens.len(),
            { attributes::CACHED_TOKENS } = Empty,
            { attributes::OUTPUT_TOKENS } = Empty,
            { attributes::ATTEMPT } = Empty,
            { attributes::ERROR_TYPE } = Empty,
        );
        set_parent(&span, &header.trace.traceparent);
        if open.attempt > 0 {
            span.record(attributes::ATTEMPT, open.attempt);
            add_link(&span, &open.moved_from.traceparent);
        }
        span
    }

    /// Relays the job to its end; returns the last frame.
    async fn run(
        &self,
        relay: &mut Relay<'_>,
        prefill: Option<InstanceRef>,
        header: &Header,
        generation: Generation,
    ) -> Result<GenerateFrame, RequestError> {
        if let Some(prefill) = prefill {
            let pages = match relay.reserved().await? {
                Reserved::Pages(pages) => pages,
                Reserved::NothingToDo(last) => return Ok(last),
            };
            let first = self.fetch_prompt(relay, pages, prefill, header, generation).await?;
            relay.begin_with(first).await?;
        }
        relay.run_to_end().await
    }

    /// Has the prompt computed elsewhere and its pages brought here.
    async fn fetch_prompt(
        &self,
        relay: &Relay<'_>,
        (first_page, end_page): (u32, u32),
        prefill: InstanceRef,
        header: &Header,
        generation: Generation,
    ) -> Result<FirstToken, RequestError> {
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
        let inbox = self.tickets.open(ticket.clone(), PAGES_MAX)?;
        let span = tracing::info_span!(
            parent: relay.span(),
            spans::KV_TRANSFER,
            instance = %self.parts.life.instance.path,
            from = %prefill.path,
            { attributes::KV_PAGES } = end_page - first_page,
            { attributes::KV_BYTES } = Empty,
            { attributes::ERROR_TYPE } = Empty,
        );
        let header = Header {
            trace: context_of(relay.span()),
            ..header.clone()
        };
        let request = Prefill {
            header: header.clone(),
            generation,
            ticket,
        };
        let fetched = async {
            let frames = fabric.streams.open::<PrefillProtocol>(prefill, header, request).await?;
            gather(relay, frames, inbox, &span).await
        }
        .await;
        failure::note(&span, &fetched);
        fetched
    }
}

/// The first token, and how the prompt came about.
struct FirstToken {
    token: TokenOut,
    cached_tokens: u32,
    prompt: Option<GenerateFrame>,
}

/// Takes pages and frames as they come, until prefill says that it is done and the inbox agrees that nothing is missing.
/// The two travel separately: the last page may be here before what was sent first.
async fn gather(
    relay: &Relay<'_>,
    mut frames: Stream<PrefillFrame>,
    mut inbox: Inbox,
    span: &Span,
) -> Result<FirstToken, RequestError> {
    let (mut prompt, mut first, mut bytes, mut has_all_pages) = (None, None, 0u64, false);
    loop {
        if has_all_pages && let Some((token, cached_tokens)) = first {
            span.record(attributes::KV_BYTES, bytes);
            return Ok(FirstToken {
                token,
                cached_tokens,
                prompt,
            });
        }
        tokio::select! {
            arrived = inbox.next(), if !has_all_pages => match arrived? {
                Some(page) => {
                    bytes += page.bytes.len() as u64;
                    relay.import(page.page, page.bytes)?;
                }
                // Count and digest agree with what the sender said.
                None => has_all_pages = true,
            },
            frame = frames.next(), if first.is_none() => match frame {
                Some(Ok(PrefillFrame::Prompt(entries))) => prompt = Some(GenerateFrame::Prompt(entries)),
                Some(Ok(PrefillFrame::Done { first: token, cached_tokens, .. })) => first = Some((token, cached_tokens)),
                Some(Err(error)) => return Err(error),
                None => return Err(failure::lost("the prefill stream ended without a first token")),
            },
        }
    }
}
