//! A job's events on their way into a stream.

use bytes::Bytes;
use cluster_engine::Event;
use cluster_fabric::Sink;
use cluster_messages::{GenerateFrame, RequestError};
use cluster_telemetry::names::{attributes, spans};
use tracing::{Span, field::Empty};

use super::FirstToken;
use crate::{
    engine_host::RunningJob,
    failure::{self, Phase},
    tokenizer::context_of,
    worker::{MediaPrompt, WorkerParts},
};

pub(super) struct Relay<'a> {
    parts: &'a WorkerParts,
    job: RunningJob,
    sink: Sink<GenerateFrame>,
    phase: Phase,
    prompt_media: MediaPrompt<'a>,
    /// The prompt's part of the run while it is computed here.
    prompt: Option<Span>,
    tokens_sent: usize,
}

/// What a job that shall start from another's pages says first.
pub(super) enum Reserved {
    /// It has blocks, and lacks the pages from the first to before the second.
    Pages((u32, u32)),
    /// It was moved at the very end of its answer; this is its last frame.
    NothingToDo(GenerateFrame),
}

impl<'a> Relay<'a> {
    pub(super) fn new(
        parts: &'a WorkerParts,
        job: RunningJob,
        sink: Sink<GenerateFrame>,
        phase: Phase,
        prompt_media: MediaPrompt<'a>,
    ) -> Self {
        Self {
            parts,
            job,
            sink,
            phase,
            prompt_media,
            prompt: None,
            tokens_sent: 0,
        }
    }

    /// The prompt is computed here, from now on until the first token: a part of the run with a span of its own.
    pub(super) fn computing_the_prompt(self) -> Self {
        let prompt = tracing::info_span!(
            parent: self.span(),
            spans::PREFILL_RUN,
            instance = %self.parts.life.instance.path,
            { attributes::CACHED_TOKENS } = Empty,
            { attributes::ERROR_TYPE } = Empty,
        );
        Self {
            prompt: Some(prompt),
            ..self
        }
    }

    pub(super) fn span(&self) -> &Span {
        self.phase.span()
    }

    pub(super) fn import(&self, page: u32, bytes: Bytes) -> Result<(), RequestError> {
        self.job.import(page, bytes)
    }

    /// Waits until the job has its blocks.
    pub(super) async fn reserved(&mut self) -> Result<Reserved, RequestError> {
        loop {
            match self.job.next().await? {
                Event::Reserved {
                    first_page, end_page, ..
                } => return Ok(Reserved::Pages((first_page, end_page))),
                Event::Finished { reason, usage, .. } => {
                    return Ok(Reserved::NothingToDo(GenerateFrame::Finished { reason, usage }));
                }
                Event::Failed { error, .. } => return Err(error),
                event => self.side_event(event).await?,
            }
        }
    }

    /// All pages are there: the job goes on from the token that prefill chose.
    pub(super) async fn begin_with(&mut self, first: FirstToken) -> Result<(), RequestError> {
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

    /// Relays until the job ends; its last frame is the caller's to send.
    pub(super) async fn run_to_end(&mut self) -> Result<GenerateFrame, RequestError> {
        let mut tokens = Vec::new();
        loop {
            let mut event = Some(self.job.next().await?);
            // Tokens that are there already travel in one frame.
            while let Some(Event::Tokens { tokens: more, .. }) = event {
                tokens.extend(more);
                event = self.job.ready();
            }
            if !tokens.is_empty() {
                self.prompt = None;
                self.tokens_sent += tokens.len();
                self.send(GenerateFrame::Tokens(std::mem::take(&mut tokens))).await?;
            }
            match event {
                None => {}
                Some(Event::Prompt { logprobs, .. }) => self.send(GenerateFrame::Prompt(logprobs)).await?,
                Some(Event::Failed { error, .. }) => return Err(error),
                Some(Event::Finished { reason, usage, .. }) => return Ok(GenerateFrame::Finished { reason, usage }),
                Some(event) => self.side_event(event).await?,
            }
        }
    }

    /// Ends the job and its spans; what is left is the way to the reader.
    pub(super) fn end<T>(self, result: &Result<T, RequestError>) -> Sink<GenerateFrame> {
        let span = self.phase.span();
        span.record(attributes::OUTPUT_TOKENS, self.tokens_sent);
        if let Some(prompt) = &self.prompt {
            failure::note(prompt, result);
        }
        self.phase.end(result);
        self.sink
    }

    /// Events that are not for the client's eyes.
    async fn side_event(&mut self, event: Event) -> Result<(), RequestError> {
        match event {
            Event::Admitted { cached_tokens, .. } => {
                if let Some(prompt) = &self.prompt {
                    prompt.record(attributes::CACHED_TOKENS, cached_tokens);
                }
                self.started(cached_tokens).await
            }
            Event::Features { media, .. } => {
                let span = self.prompt.as_ref().unwrap_or_else(|| self.span());
                let features = &self.parts.features;
                features.supply(&self.job, &media, &self.prompt_media, span).await
            }
            Event::Lookup { hashes, .. } => self.parts.look_up(&self.job, hashes).await,
            // Dealt with where they may come; elsewhere they mean that the engine and this role disagree.
            Event::Reserved { .. }
            | Event::Prompt { .. }
            | Event::Tokens { .. }
            | Event::Finished { .. }
            | Event::Failed { .. } => Err(failure::lost("the engine spoke out of turn")),
            // Those of a prefill job, and those of no job.
            Event::Page { .. }
            | Event::Prefilled { .. }
            | Event::Stored(_)
            | Event::Removed(_)
            | Event::Evicted { .. } => Ok(()),
        }
    }

    async fn started(&mut self, cached_tokens: u32) -> Result<(), RequestError> {
        self.span().record(attributes::CACHED_TOKENS, cached_tokens);
        let run = context_of(self.span());
        self.send(GenerateFrame::Started { cached_tokens, run }).await
    }

    async fn send(&mut self, frame: GenerateFrame) -> Result<(), RequestError> {
        let sent = self.sink.send(frame).await;
        sent.map_err(|_| failure::closed(&*self.parts.life.host.fabric.clock, self.prompt_media.header.deadline))
    }
}
