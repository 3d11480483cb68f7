//! What decode and prefill instances have in common: an engine on its thread, the publication of what it holds and how
//! busy it is, and the traffic with the cache tier.

use std::{future::Future, marker::PhantomData, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use cluster_engine::{Config, ModelFactory};
use cluster_fabric::{Credits, Message, Request, StreamProtocol};
use cluster_messages::{
    ActorPath, BlockHash, CachedPage, Capacity, Fetch, Fingerprint, KvEvent, KvEventKind, LoadReport, Registration,
    RequestError, Role, Store,
};
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef};
use tokio::sync::mpsc;

use self::{features::FeatureSource, shown::Shown};
use crate::{
    engine_host::{EngineHandle, EngineOutputs, EngineReport, RunningJob},
    host::{Host, Registered},
    media::EncoderSettings,
    media_engine::{MediaEngine, MediaEngineOwner},
    peers::Peers,
    service::Service,
    status::Exit,
    subjects,
    supervisor::{Life, RoleSpec, spawn_linked},
    tasks::Tasks,
};

mod features;
mod shown;

pub(crate) use features::MediaPrompt;
pub(crate) use shown::show_nothing;

/// Load is reported this often, and at once when asked: a router that hears nothing for a few of these suspects the instance.
pub(crate) const REPORT_EVERY: Duration = Duration::from_secs(1);
/// Hashes in one message; 16 bytes each must stay below the bus's limit.
const HASHES_PER_EVENT: usize = 2000;
/// Pages in one offer to the cache.
const PAGES_PER_OFFER: usize = 32;
/// How long a job waits for a lower tier: longer than a copy takes, shorter than computing the pages again.
const FETCH_MAX: Duration = Duration::from_millis(250);
/// When a client that found every place taken should come back.
const RETRY_AFTER_MS: u32 = 1000;

/// How to run a worker.
#[derive(Clone)]
pub struct WorkerSettings {
    /// The engine's limits.
    pub engine: Config,
    /// Roles folded into this one.
    pub folds: Vec<Role>,
    /// Roles it cannot serve without.
    pub needs: Vec<Vec<Role>>,
    /// Builds the model, at each start again.
    pub factory: ModelFactory,
    /// How it encodes media itself; none: an encoder must have done it.
    pub encoder: Option<EncoderSettings>,
}

/// What the two kinds of worker do with a request.
pub trait WorkerRole: Sized + Send + Sync + 'static {
    /// What is asked of them.
    type Protocol: StreamProtocol + Send;

    /// One life of it.
    fn new(parts: WorkerParts) -> Result<Self, String>;

    /// Serves one request to its end.
    fn serve(self: Arc<Self>, request: Request<Self::Protocol>) -> impl Future<Output = ()> + Send;
}

/// What one life of a worker works with.
pub struct WorkerParts {
    pub(crate) life: Life,
    pub(crate) engine: EngineHandle,
    pub(crate) tier: Option<Tier>,
    pub(crate) features: FeatureSource,
}

impl WorkerParts {
    /// Answers a job that asks for pages of a lower tier.
    pub(crate) async fn look_up(&self, job: &RunningJob, hashes: Vec<BlockHash>) -> Result<(), RequestError> {
        let pages = match &self.tier {
            Some(tier) => tier.fetch(hashes).await,
            None => Vec::new(),
        };
        job.provide(pages)
    }
}

/// How to start a worker.
pub struct WorkerSpec<R> {
    path: ActorPath,
    settings: WorkerSettings,
    role: PhantomData<fn() -> R>,
}

impl<R> WorkerSpec<R> {
    /// The worker called `path`.
    pub fn new(path: ActorPath, settings: WorkerSettings) -> Self {
        Self {
            path,
            settings,
            role: PhantomData,
        }
    }
}

#[async_trait]
impl<R: WorkerRole> RoleSpec for WorkerSpec<R> {
    fn path(&self) -> ActorPath {
        self.path
    }

    async fn spawn(&self, life: Life) -> Result<ActorCell, String> {
        let actor = WorkerActor::<R> {
            life: life.clone(),
            role: PhantomData,
        };
        spawn_linked(actor, self.settings.clone(), life.supervisor).await
    }
}

struct WorkerActor<R> {
    life: Life,
    role: PhantomData<fn() -> R>,
}

/// What a worker's actor is told.
pub(crate) enum WorkerMessage {
    /// The engine's thread ended.
    EngineEnded(String),
}

impl<R: WorkerRole> Actor for WorkerActor<R> {
    type Msg = WorkerMessage;
    type State = Worker;
    type Arguments = WorkerSettings;

    async fn pre_start(
        &self,
        myself: ActorRef<WorkerMessage>,
        settings: WorkerSettings,
    ) -> Result<Worker, ActorProcessingErr> {
        Ok(Worker::start::<R>(&self.life, &settings, &myself).await?)
    }

    async fn handle(
        &self,
        _: ActorRef<WorkerMessage>,
        message: WorkerMessage,
        _: &mut Worker,
    ) -> Result<(), ActorProcessingErr> {
        // The engine's death is the actor's.
        let WorkerMessage::EngineEnded(reason) = message;
        self.life.exit.leave(Exit::EngineLost(reason.clone()));
        Err(reason.into())
    }
}

/// A running worker. Dropping it ends everything it started.
pub(crate) struct Worker {
    // First, so that nobody is sent to a door that has just closed.
    _registered: Registered,
    _service: Service,
    _tasks: Tasks,
}

impl Worker {
    /// Builds the model, starts the engine and everything around it, opens the door, and last of all registers: nobody is
    /// sent to a closed door.
    async fn start<R: WorkerRole>(
        life: &Life,
        settings: &WorkerSettings,
        myself: &ActorRef<WorkerMessage>,
    ) -> Result<Self, String> {
        let (host, instance) = (&life.host, life.instance);
        let clock = host.fabric.clock.clone();
        let started = EngineHandle::start(
            instance.path.to_string(),
            settings.factory.clone(),
            settings.engine.clone(),
            clock,
        );
        let (engine, outputs) = started.await.map_err(|error| error.to_string())?;
        let layout = engine.info().layout;
        let tier = settings.engine.tier.then(|| Tier {
            peers: host.peers.clone(),
            layout,
        });
        let (local, local_owner) = start_encoder(life, settings).await?.unzip();
        let role = R::new(WorkerParts {
            life: life.clone(),
            engine: engine.clone(),
            tier: tier.clone(),
            features: FeatureSource::new(life, engine.info().width, local),
        })?;
        let role = Arc::new(role);
        let credits = Credits::new(settings.requests_max(), RETRY_AFTER_MS);
        let handler = move |request| role.clone().serve(request);
        let service = Service::start::<R::Protocol, _, _>(&host.fabric.streams, instance, credits, handler)?;
        let mut tasks = start_tasks(life, &engine, outputs, tier, myself.clone());
        if let Some(owner) = local_owner {
            tasks.spawn(watch_encoder(owner, myself.clone()));
        }
        let registered = host.register(settings.registration(life, &engine)).await?;
        engine.request_snapshot();
        Ok(Self {
            _service: service,
            _registered: registered,
            _tasks: tasks,
        })
    }
}

impl WorkerSettings {
    /// Requests inside at once, running and waiting.
    fn requests_max(&self) -> u32 {
        self.engine.running_max + self.engine.waiting_max
    }

    fn registration(&self, life: &Life, engine: &EngineHandle) -> Registration {
        Registration {
            model: engine.info().fingerprint,
            layout: engine.info().layout,
            capacity: Capacity {
                requests: self.requests_max(),
                blocks: self.engine.blocks.first().copied().unwrap_or(0),
                block_tokens: self.engine.block_tokens,
                context: engine.info().context,
            },
            folds: self.folds.clone(),
            needs: self.needs.clone(),
            ..life.host.registration(life.instance)
        }
    }
}

async fn start_encoder(
    life: &Life,
    settings: &WorkerSettings,
) -> Result<Option<(MediaEngine, MediaEngineOwner)>, String> {
    let Some(encoder) = &settings.encoder else {
        return Ok(None);
    };
    let started = MediaEngine::start(encoder, life.host.fabric.clock.clone()).await;
    started.map(Some).map_err(|error| error.to_string())
}

/// Keeps the encoder as long as the worker lives, and ends the worker with it.
async fn watch_encoder(mut owner: MediaEngineOwner, actor: ActorRef<WorkerMessage>) {
    if let Some(reason) = owner.ended().await {
        // A stopped actor no longer cares.
        let _gone = actor.cast(WorkerMessage::EngineEnded(reason));
    }
    std::future::pending::<()>().await;
}

/// What goes on beside the requests.
fn start_tasks(
    life: &Life,
    engine: &EngineHandle,
    outputs: EngineOutputs,
    tier: Option<Tier>,
    actor: ActorRef<WorkerMessage>,
) -> Tasks {
    let EngineOutputs {
        changes,
        evicted,
        ended,
    } = outputs;
    let watch_end = async move {
        if let Ok(reason) = ended.await {
            // A stopped actor no longer cares.
            let _gone = actor.cast(WorkerMessage::EngineEnded(reason));
        }
    };
    let mut tasks = Tasks::default();
    tasks.spawn(watch_end);
    tasks.spawn(publish_changes(life.clone(), changes));
    let reporter = engine.clone();
    tasks.spawn(report_load(life.clone(), move || reporter.report()));
    tasks.spawn(answer_snapshots(life.clone(), engine.clone()));
    if let Some(tier) = tier {
        tasks.spawn(tier.keep(evicted));
    }
    tasks
}

/// Numbers the engine's changes and publishes them.
async fn publish_changes(life: Life, mut changes: mpsc::Receiver<KvEventKind>) {
    let subject = subjects::kv(&life.host, life.instance);
    let mut seq = 0;
    while let Some(change) = changes.recv().await {
        for kind in split(change) {
            seq += 1;
            publish(
                &life.host,
                &subject,
                &KvEvent {
                    instance: life.instance,
                    seq,
                    kind,
                },
            )
            .await;
        }
    }
}

/// Cuts a change into parts that fit a message.
fn split(change: KvEventKind) -> Vec<KvEventKind> {
    let parts = |hashes: &[BlockHash], of: fn(Vec<BlockHash>) -> KvEventKind| {
        hashes
            .chunks(HASHES_PER_EVENT)
            .map(|part| of(part.to_vec()))
            .collect::<Vec<_>>()
    };
    match change {
        KvEventKind::Stored(hashes) => parts(&hashes, KvEventKind::Stored),
        KvEventKind::Removed(hashes) => parts(&hashes, KvEventKind::Removed),
        KvEventKind::Snapshot(hashes) => {
            let first = hashes.len().min(HASHES_PER_EVENT);
            let mut all = vec![KvEventKind::Snapshot(hashes[..first].to_vec())];
            all.extend(parts(&hashes[first..], KvEventKind::Stored));
            all
        }
    }
}

/// Once a second: how busy, and how many steps. A report is a heartbeat; its `steps` tell a frozen engine from an idle one.
pub(crate) async fn report_load(life: Life, report: impl Fn() -> EngineReport) {
    let subject = subjects::load(&life.host, life.instance);
    let mut shown = Shown::new(&life);
    let mut seq = 0;
    loop {
        let report = report();
        seq += 1;
        shown.show(&life, report);
        publish(
            &life.host,
            &subject,
            &LoadReport {
                instance: life.instance,
                seq,
                sample: report.load,
            },
        )
        .await;
        life.host.fabric.clock.sleep(REPORT_EVERY).await;
    }
}

/// A router that missed something asks; the snapshot comes with the other changes, in order.
async fn answer_snapshots(life: Life, engine: EngineHandle) {
    let subject = subjects::snapshot(&life.host, life.instance);
    match life.host.fabric.messaging.subscribe(&subject, 16).await {
        Err(error) => tracing::error!(instance = %life.instance, %error, "snapshots cannot be asked for"),
        Ok(mut asked) => {
            while asked.next().await.is_some() {
                engine.request_snapshot();
            }
        }
    }
}

async fn publish<T: cluster_fabric::Wire>(host: &Host, subject: &str, event: &T) {
    let bytes = cluster_fabric::wire::encode(event).expect("plain types of cluster-messages encode");
    if let Err(error) = host.fabric.messaging.publish(subject, Message::new(bytes)).await {
        // The receiver sees the gap in the sequence numbers and asks for a snapshot.
        tracing::debug!(subject, %error, "event not published");
    }
}

/// The worker's side of the cache tier.
#[derive(Clone)]
pub(crate) struct Tier {
    peers: Peers,
    layout: Fingerprint,
}

impl Tier {
    /// The longest run of these pages that a cache holds; nothing when it does not answer in time.
    pub(crate) async fn fetch(&self, hashes: Vec<BlockHash>) -> Vec<Bytes> {
        if hashes.is_empty() {
            return Vec::new();
        }
        self.peers
            .fetch(
                Fetch {
                    layout: self.layout,
                    hashes,
                },
                FETCH_MAX,
            )
            .await
    }

    /// Offers evicted pages to a cache, several at a time.
    async fn keep(self, mut evicted: mpsc::Receiver<CachedPage>) {
        let mut pages = Vec::new();
        while evicted.recv_many(&mut pages, PAGES_PER_OFFER).await > 0 {
            self.peers
                .store(Store {
                    layout: self.layout,
                    pages: std::mem::take(&mut pages),
                })
                .await;
        }
    }
}
