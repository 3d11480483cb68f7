//! The prefill role: computes a prompt in chunks, pushes each page to the ticket as it is completed, and chooses the first
//! token. It keeps nothing of a request but what its prefix cache keeps.

use std::sync::Arc;

use async_trait::async_trait;
use cluster_engine::{Event, JobKind};
use cluster_fabric::{Credits, Request, Sink};
use cluster_messages::{ActorPath, ErrorKind, Header, Prefill, PrefillFrame, RequestError, TokenOut};
use cluster_telemetry::{
    names::{attributes, spans},
    set_parent,
};
use cluster_transfer::{Proof, Pusher};
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef};
use tracing::{Instrument, Span, field::Empty};

use crate::{
    engine_host::{EngineHandle, RunningJob},
    protocol::PrefillProtocol,
    service::Service,
    supervisor::{Life, RoleSpec},
    worker::{Tier, Worker, WorkerMessage, WorkerSettings, on_message},
};

/// How to start a prefill instance.
pub struct PrefillSpec {
    /// Its name.
    pub path: ActorPath,
    /// How to run it.
    pub settings: WorkerSettings,
}

#[async_trait]
impl RoleSpec for PrefillSpec {
    fn path(&self) -> ActorPath {
        self.path
    }

    async fn spawn(&self, life: Life) -> Result<ActorCell, String> {
        let supervisor = life.supervisor.clone();
        let started = Actor::spawn_linked(None, PrefillActor { life }, self.settings.clone(), supervisor).await;
        started
            .map(|(actor, _)| actor.get_cell())
            .map_err(|error| error.to_string())
    }
}

struct PrefillActor {
    life: Life,
}

struct PrefillState {
    _service: Service,
    _worker: Worker,
}

impl Actor for PrefillActor {
    type Msg = WorkerMessage;
    type State = PrefillState;
    type Arguments = WorkerSettings;

    async fn pre_start(
        &self,
        myself: ActorRef<WorkerMessage>,
        settings: WorkerSettings,
    ) -> Result<PrefillState, ActorProcessingErr> {
        let mut service = None;
        let credits = Credits::new(settings.engine.running_max + settings.engine.waiting_max, 1000);
        let open_door = |engine: &EngineHandle, tier: Option<&Tier>| {
            let server = Arc::new(Server {
                life: self.life.clone(),
                engine: engine.clone(),
                tier: tier.cloned(),
            });
            let handler = move |request| server.clone().serve(request);
            let streams = &self.life.host.fabric.streams;
            service = Some(Service::start::<PrefillProtocol, _, _>(
                streams,
                self.life.instance,
                credits,
                handler,
            )?);
            Ok(())
        };
        let _worker = Worker::start(&self.life, &settings, &myself, open_door).await?;
        let _service = service.expect("a worker that started has opened its door");
        Ok(PrefillState { _service, _worker })
    }

    async fn handle(
        &self,
        _: ActorRef<WorkerMessage>,
        message: WorkerMessage,
        _: &mut PrefillState,
    ) -> Result<(), ActorProcessingErr> {
        on_message(&self.life, message)
    }
}

struct Server {
    life: Life,
    engine: EngineHandle,
    tier: Option<Tier>,
}

impl Server {
    async fn serve(self: Arc<Self>, request: Request<PrefillProtocol>) {
        let Request { header, open, respond } = request;
        let Prefill { generation, ticket, .. } = open;
        let (first_page, end_page) = (ticket.first_page, ticket.end_page);
        let pusher = match self.life.host.transfer.start(ticket, self.engine.info().layout) {
            Ok(pusher) => pusher,
            Err(error) => return respond.refuse(RequestError::new(ErrorKind::Internal, error.to_string())),
        };
        let span = self.span(&header, generation.tokens.len());
        let kind = JobKind::Prefill { first_page, end_page };
        let job = match self.engine.submit(generation, kind).await {
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

    fn span(&self, header: &Header, tokens: usize) -> Span {
        let span = tracing::info_span!(
            spans::PREFILL_RUN,
            instance = %self.life.instance.path,
            { attributes::INPUT_TOKENS } = tokens,
            { attributes::CACHED_TOKENS } = Empty,
        );
        set_parent(&span, &header.trace.traceparent);
        span
    }
}

/// One prompt on its way.
struct Run<'a> {
    server: &'a Server,
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
                    let found = match &self.server.tier {
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
