//! The tokenizer role: text on the gateway's side, tokens on the workers' side. It owns a request from admission to the
//! last character, and therefore also its moves: when the instance behind a stream dies, another one continues after the
//! tokens already received, and the client sees a pause.

use std::sync::Arc;

use async_trait::async_trait;
use cluster_fabric::{Closed, Credits, Request, Sink};
use cluster_messages::{ActorPath, ErrorKind, Header, RequestError, TextFrame, TextRequest, TraceContext, Usage};
use cluster_telemetry::{
    names::{attributes, spans},
    set_parent, traceparent_of,
};
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef};
use tokio::sync::Mutex;
use tracing::{Instrument, field::Empty};

use self::{
    attempt::{Attempt, Errand, Reached, Tries},
    choice_run::ChoiceRun,
    prepare::Prepared,
};
use crate::{
    failure::{self, Phase},
    host::{Host, Registered},
    media::MediaPolicy,
    protocol::TextProtocol,
    service::{Service, admit},
    supervisor::{Life, RoleSpec, spawn_linked},
};

mod attempt;
mod choice;
mod choice_run;
mod encoding;
#[cfg(test)]
mod media_tests;
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
    /// Where media are encoded.
    pub media: MediaPolicy,
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
            media: self.media,
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
    pub(crate) media: MediaPolicy,
}

struct TokenizerActor;

struct TokenizerState {
    // First, so that nobody is sent to a door that has just closed.
    _registered: Registered,
    _service: Service,
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
        Ok(TokenizerState { _registered, _service })
    }
}

async fn serve(shared: Arc<Shared>, request: Request<TextProtocol>) {
    let Request { header, open, respond } = request;
    // A refusal is the gateway's to record; what failed is in the span of the part that did.
    if let Ok(((prepared, attempts), sink)) = admit(respond, FRAMES_MAX, begin(&shared, &header, open)).await {
        run(&shared, &prepared, &header, attempts, sink).await;
    }
}

/// Encodes, and has every choice admitted somewhere, before the client is told that it is.
async fn begin(
    shared: &Shared,
    header: &Header,
    request: TextRequest,
) -> Result<(Prepared, Vec<(Attempt, Tries)>), RequestError> {
    let prepared = prepare(shared, header, request).await?;
    let first_attempts = (0..prepared.request.choices.max(1)).map(|index| {
        let errand = Errand {
            shared,
            prepared: &prepared,
            header,
            index,
        };
        async move {
            let mut tries = Tries::default();
            let attempt = tries.open(errand, Reached::default()).await?;
            Ok::<_, RequestError>((attempt, tries))
        }
    });
    let attempts = futures::future::try_join_all(first_attempts).await;
    let attempts = attempts.map_err(|error| prepared.explain(error))?;
    Ok((prepared, attempts))
}

async fn prepare(shared: &Shared, header: &Header, request: TextRequest) -> Result<Prepared, RequestError> {
    let span = tracing::info_span!(
        spans::TOKENIZER_ENCODE,
        instance = %shared.life.instance.path,
        { attributes::INPUT_TOKENS } = Empty,
        { attributes::MEDIA } = Empty,
        { attributes::ERROR_TYPE } = Empty,
    );
    set_parent(&span, &header.trace.traceparent);
    let prepared = encode(shared, request).instrument(span.clone()).await;
    failure::note(&span, &prepared);
    if let Ok(prepared) = &prepared {
        span.record(attributes::INPUT_TOKENS, prepared.prompt.len());
        if !prepared.media.is_empty() {
            span.record(attributes::MEDIA, prepared.media.len());
        }
    }
    prepared
}

async fn encode(shared: &Shared, request: TextRequest) -> Result<Prepared, RequestError> {
    // The cluster clock starts at the time of day.
    let now_s = shared.host.fabric.clock.now() / 1000;
    if prepare::size_of(&request.input) <= INLINE_BYTES_MAX {
        return shared.model.prepare(request, now_s);
    }
    let model = shared.model.clone();
    let encoded = tokio::task::spawn_blocking(move || model.prepare(request, now_s)).await;
    encoded.unwrap_or_else(|_| Err(RequestError::new(ErrorKind::Internal, "encoding the prompt failed")))
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
        { attributes::OUTPUT_TOKENS } = Empty,
        { attributes::ERROR_TYPE } = Empty,
    );
    set_parent(&span, &header.trace.traceparent);
    let phase = Phase::new(span);
    let stopped = sink.stopped();
    let out = Mutex::new(sink);
    let work = answer(shared, prepared, header, attempts, &out).instrument(phase.span().clone());
    let result = tokio::select! {
        result = work => result,
        () = stopped => Err(closed(shared, header)),
    };
    if let Ok(usage) = &result {
        phase.span().record(attributes::OUTPUT_TOKENS, usage.completion_tokens);
    }
    // Over before the client hears of it: whoever reads the trace after the answer finds it there.
    phase.end(&result);
    let mut sink = out.into_inner();
    let end = match result {
        Ok(usage) => sink
            .send(TextFrame::Usage(usage))
            .await
            .map_err(|_| closed(shared, header)),
        Err(error) => Err(prepared.explain(error)),
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
    let choices = attempts.into_iter().enumerate().map(|(index, (attempt, tries))| {
        let errand = Errand {
            shared,
            prepared,
            header,
            index: index as u32,
        };
        ChoiceRun::new(errand, out, tries).run_to_end(attempt)
    });
    send(out, TextFrame::Admitted { prompt_tokens })
        .await
        .map_err(|Closed| closed(shared, header))?;
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

async fn send(out: &Out, frame: TextFrame) -> Result<(), Closed> {
    out.lock().await.send(frame).await
}

fn closed(shared: &Shared, header: &Header) -> RequestError {
    failure::closed(&*shared.host.fabric.clock, header.deadline)
}

/// The trace context that makes a peer's span a child of `span`.
pub(crate) fn context_of(span: &tracing::Span) -> TraceContext {
    TraceContext {
        traceparent: traceparent_of(span),
    }
}
