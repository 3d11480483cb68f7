//! The tokenizer role: text on the gateway's side, tokens on the workers' side. It owns a request from admission to the
//! last character, and therefore also its moves: when the instance behind a stream dies, another one continues after the
//! tokens already received, and the client sees a pause.

use std::sync::Arc;

use async_trait::async_trait;
use cluster_fabric::{Credits, Request, Sink};
use cluster_messages::{
    ActorPath, ErrorKind, FinishReason, GenerateFrame, Header, RequestError, TextFrame, TextInput, TextRequest,
    TraceContext, Usage,
};
use cluster_telemetry::{
    names::{attributes, spans},
    set_parent, traceparent_of,
};
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef};
use tokio::sync::Mutex;
use tracing::Instrument;

use self::{
    attempt::{Attempt, Tries},
    choice::{Choice, text_logprob},
    prepare::Prepared,
};
use crate::{
    host::{Host, Registered},
    protocol::TextProtocol,
    service::Service,
    supervisor::{Life, RoleSpec, spawn_linked},
};

mod attempt;
mod choice;
mod prepare;
#[cfg(test)]
mod tests;

pub use prepare::TextModel;

/// Frames that may wait for the gateway; a client that reads slowly holds up only its own stream.
const FRAMES_MAX: usize = 64;
/// Longer inputs are encoded on another thread: the rest of the node must not wait for them.
const INLINE_BYTES_MAX: usize = 8 * 1024;

/// How to start a tokenizer.
pub struct TokenizerSpec {
    /// Its name.
    pub path: ActorPath,
    /// Requests at once.
    pub requests_max: u32,
    /// The served model.
    pub model: Arc<TextModel>,
}

#[async_trait]
impl RoleSpec for TokenizerSpec {
    fn path(&self) -> ActorPath {
        self.path
    }

    async fn spawn(&self, life: Life) -> Result<ActorCell, String> {
        let shared = Arc::new(Shared {
            host: life.host.clone(),
            life: life.clone(),
            model: self.model.clone(),
        });
        let arguments = (shared, self.requests_max);
        spawn_linked(TokenizerActor, arguments, life.supervisor).await
    }
}

/// What all requests of one life share.
pub(crate) struct Shared {
    pub(crate) host: Host,
    pub(crate) life: Life,
    pub(crate) model: Arc<TextModel>,
}

struct TokenizerActor;

struct TokenizerState {
    _service: Service,
    _registered: Registered,
}

impl Actor for TokenizerActor {
    type Msg = ();
    type State = TokenizerState;
    type Arguments = (Arc<Shared>, u32);

    async fn pre_start(
        &self,
        _: ActorRef<()>,
        (shared, requests_max): Self::Arguments,
    ) -> Result<TokenizerState, ActorProcessingErr> {
        let credits = Credits::new(requests_max, 1000);
        let instance = shared.life.instance;
        let mut registration = shared.host.registration(instance);
        registration.model = shared.model.fingerprint;
        registration.capacity.requests = requests_max;
        registration.capacity.context = shared.model.context;
        let streams = shared.host.fabric.streams.clone();
        let host = shared.host.clone();
        let handler = move |request| serve(shared.clone(), request);
        let _service = Service::start::<TextProtocol, _, _>(&streams, instance, credits, handler)?;
        let _registered = host.register(registration).await?;
        Ok(TokenizerState { _service, _registered })
    }
}

async fn serve(shared: Arc<Shared>, request: Request<TextProtocol>) {
    let Request { header, open, respond } = request;
    let begun = begin(&shared, header, open).await;
    match begun {
        Err(error) => respond.refuse(error),
        Ok((prepared, header, attempts)) => {
            let sink = respond.accept(FRAMES_MAX);
            run(&shared, &prepared, &header, attempts, sink).await;
        }
    }
}

/// Encodes, and has every choice admitted somewhere, before the client is told that it is.
async fn begin(
    shared: &Shared,
    header: Header,
    request: TextRequest,
) -> Result<(Prepared, Header, Vec<(Attempt, Tries)>), RequestError> {
    let span = tracing::info_span!(
        spans::TOKENIZER_ENCODE,
        instance = %shared.life.instance.path,
        { attributes::INPUT_TOKENS } = tracing::field::Empty,
    );
    set_parent(&span, &header.trace.traceparent);
    let prepared = prepare(shared, request).instrument(span.clone()).await?;
    span.record(attributes::INPUT_TOKENS, prepared.prompt.len());
    drop(span);
    let first_choices = (0..prepared.request.choices.max(1)).map(|index| {
        let (header, prepared) = (&header, &prepared);
        async move {
            let mut tries = Tries::default();
            let attempt = tries.open(shared, prepared, header, index, &[]).await?;
            Ok::<_, RequestError>((attempt, tries))
        }
    });
    let attempts = futures::future::try_join_all(first_choices).await?;
    Ok((prepared, header, attempts))
}

async fn prepare(shared: &Shared, request: TextRequest) -> Result<Prepared, RequestError> {
    let bytes = match &request.input {
        TextInput::Chat(chat) => chat.messages.iter().map(content_bytes).sum(),
        TextInput::Text(text) => text.len(),
        TextInput::Tokens(_) => 0,
    };
    // The cluster clock starts at the time of day.
    let now_s = shared.host.fabric.clock.now() / 1000;
    if bytes <= INLINE_BYTES_MAX {
        return shared.model.prepare(request, now_s);
    }
    let model = shared.model.clone();
    let encoded = tokio::task::spawn_blocking(move || model.prepare(request, now_s)).await;
    encoded.unwrap_or_else(|_| Err(RequestError::new(ErrorKind::Internal, "encoding the prompt failed")))
}

fn content_bytes(message: &cluster_messages::ChatMessage) -> usize {
    use cluster_messages::{Content, Part};
    match &message.content {
        None => 0,
        Some(Content::Text(text)) => text.len(),
        Some(Content::Parts(parts)) => parts.iter().map(|Part::Text(text)| text.len()).sum(),
    }
}

/// The gateway's stream, shared by the choices of one request.
type Out = Mutex<Sink<TextFrame>>;

async fn run(
    shared: &Shared,
    prepared: &Prepared,
    header: &Header,
    attempts: Vec<(Attempt, Tries)>,
    sink: Sink<TextFrame>,
) {
    let span = tracing::info_span!(
        spans::TOKENIZER_DECODE,
        instance = %shared.life.instance.path,
        { attributes::OUTPUT_TOKENS } = tracing::field::Empty,
    );
    set_parent(&span, &header.trace.traceparent);
    let stopped = sink.stopped();
    let out = Mutex::new(sink);
    let work = answer(shared, prepared, header, attempts, &out).instrument(span.clone());
    let result = tokio::select! {
        result = work => result,
        () = stopped => Err(cancelled()),
    };
    if let Ok(usage) = &result {
        span.record(attributes::OUTPUT_TOKENS, usage.completion_tokens);
    }
    let mut sink = out.into_inner();
    let end = match result {
        Ok(usage) => sink.send(TextFrame::Usage(usage)).await.map_err(|_| cancelled()),
        Err(error) => Err(error),
    };
    sink.finish(end);
}

async fn answer(
    shared: &Shared,
    prepared: &Prepared,
    header: &Header,
    attempts: Vec<(Attempt, Tries)>,
    out: &Out,
) -> Result<Usage, RequestError> {
    let prompt_tokens = prepared.prompt.len() as u32;
    send(out, TextFrame::Admitted { prompt_tokens }).await?;
    let choices = attempts.into_iter().enumerate().map(|(index, (attempt, tries))| {
        let run = ChoiceRun {
            shared,
            prepared,
            header,
            index: index as u32,
            out,
            tries,
        };
        run.to_the_end(attempt)
    });
    let usages = futures::future::try_join_all(choices).await?;
    Ok(usages.into_iter().fold(
        Usage {
            prompt_tokens,
            ..Usage::default()
        },
        |sum, usage| Usage {
            prompt_tokens,
            completion_tokens: sum.completion_tokens + usage.completion_tokens,
            cached_tokens: sum.cached_tokens.max(usage.cached_tokens),
            reasoning_tokens: sum.reasoning_tokens + usage.reasoning_tokens,
        },
    ))
}

/// One choice on its way.
struct ChoiceRun<'a> {
    shared: &'a Shared,
    prepared: &'a Prepared,
    header: &'a Header,
    index: u32,
    out: &'a Out,
    tries: Tries,
}

impl ChoiceRun<'_> {
    async fn to_the_end(mut self, mut attempt: Attempt) -> Result<Usage, RequestError> {
        let (shared, prepared) = (self.shared, self.prepared);
        let tokenizer = &shared.model.tokenizer;
        let mut choice = Choice::new(self.index, tokenizer, &prepared.request.stop, &prepared.stop_tokens);
        let mut cached_tokens = None;
        if prepared.request.echo && prepared.request.logprobs.is_none() {
            self.send_echo(Vec::new()).await?;
        }
        loop {
            let error = match self.follow(&mut choice, &mut attempt, &mut cached_tokens).await {
                Ok(()) => break,
                Err(error) => error,
            };
            if !self.tries.another_after(&attempt, &error) {
                return Err(error);
            }
            tracing::info!(request = %self.header.request, from = %attempt.decode, %error, "request moves");
            drop(attempt);
            shared.host.metrics.request_migrated();
            attempt = self
                .tries
                .open(shared, prepared, self.header, self.index, choice.tokens())
                .await?;
        }
        let completion_tokens = if prepared.max_tokens == 0 {
            0
        } else {
            choice.tokens().len() as u32
        };
        Ok(Usage {
            completion_tokens,
            cached_tokens: cached_tokens.unwrap_or(0),
            ..Usage::default()
        })
    }

    /// Relays one attempt's frames until the choice has ended.
    async fn follow(
        &self,
        choice: &mut Choice<'_>,
        attempt: &mut Attempt,
        cached: &mut Option<u32>,
    ) -> Result<(), RequestError> {
        while let Some(frame) = attempt.stream.next().await {
            match frame? {
                GenerateFrame::Started { cached_tokens } => {
                    cached.get_or_insert(cached_tokens);
                }
                GenerateFrame::Prompt(entries) => self.send_echo(entries).await?,
                GenerateFrame::Tokens(_) if self.prepared.max_tokens == 0 => {}
                GenerateFrame::Tokens(tokens) => {
                    let progress = choice.push(tokens);
                    self.send_all([progress.delta]).await?;
                    if progress.stopped {
                        attempt.stream.stop();
                        return self.send_all(choice.finish(FinishReason::Stop, true)).await;
                    }
                }
                GenerateFrame::Finished { reason, .. } => return self.send_all(choice.finish(reason, false)).await,
            }
        }
        Err(RequestError::new(
            ErrorKind::Lost,
            "the stream of tokens ended without a finish",
        ))
    }

    /// The prompt as the first text of the answer, with log-probabilities if there are any.
    async fn send_echo(&self, entries: Vec<Option<cluster_messages::TokenLogprobs>>) -> Result<(), RequestError> {
        let tokenizer = &self.shared.model.tokenizer;
        let tokens = &self.prepared.prompt;
        let logprobs = tokens
            .iter()
            .zip(&entries)
            .map(|(id, entry)| text_logprob(tokenizer, *id, entry.as_ref()));
        let text = match &self.prepared.request.input {
            TextInput::Text(text) => text.clone(),
            _ => {
                let mut detokenizer = tokenizer.detokenizer(true);
                let text = detokenizer.push(tokens);
                text + &detokenizer.finish()
            }
        };
        send(
            self.out,
            TextFrame::Delta {
                choice: self.index,
                text,
                logprobs: logprobs.collect(),
                tokens: 0,
            },
        )
        .await
    }

    async fn send_all(&self, frames: impl IntoIterator<Item = Option<TextFrame>>) -> Result<(), RequestError> {
        for frame in frames.into_iter().flatten() {
            send(self.out, frame).await?;
        }
        Ok(())
    }
}

async fn send(out: &Out, frame: TextFrame) -> Result<(), RequestError> {
    out.lock().await.send(frame).await.map_err(|_| cancelled())
}

fn cancelled() -> RequestError {
    RequestError::new(ErrorKind::Cancelled, "the caller went away")
}

/// The trace context that makes a peer's span a child of `span`.
pub(crate) fn context_of(span: &tracing::Span) -> TraceContext {
    TraceContext {
        traceparent: traceparent_of(span),
    }
}
