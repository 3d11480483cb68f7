//! What decode and prefill instances have in common: an engine on its thread, the publication of what it holds and how
//! busy it is, and the traffic with the cache tier.

use std::time::Duration;

use bytes::Bytes;
use cluster_engine::{Config, ModelFactory};
use cluster_fabric::Message;
use cluster_messages::{
    BlockHash, CachedPage, Capacity, Fetch, Fingerprint, KvEvent, KvEventKind, LoadReport, Role, Store,
};
use ractor::ActorRef;
use tokio::{sync::mpsc, task::AbortHandle};

use crate::{
    engine_host::{EngineHandle, EngineOutputs},
    host::{Host, Registered},
    peers::Peers,
    status::Exit,
    subjects,
    supervisor::Life,
};

/// Load is reported this often, and at once when asked: a router that hears nothing for a few of these suspects the instance.
pub(crate) const REPORT_EVERY: Duration = Duration::from_secs(1);
/// Hashes in one message; 16 bytes each must stay below the bus's limit.
const HASHES_PER_EVENT: usize = 2000;
/// Pages in one offer to the cache.
const PAGES_PER_OFFER: usize = 32;
/// How long a job waits for a lower tier: longer than a copy takes, shorter than computing the pages again.
const FETCH_MAX: Duration = Duration::from_millis(250);

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
}

/// What a worker's actor is told.
pub(crate) enum WorkerMessage {
    /// The engine's thread ended.
    EngineEnded(String),
}

/// A running worker. Dropping it ends everything it started.
pub(crate) struct Worker {
    _registered: Registered,
    _tasks: Tasks,
}

/// Tasks that end with their owner.
struct Tasks(Vec<AbortHandle>);

impl Drop for Tasks {
    fn drop(&mut self) {
        for task in &self.0 {
            task.abort();
        }
    }
}

impl Worker {
    /// Builds the model, starts the engine and everything around it; `open_door` starts to serve requests before the
    /// registration is published, so that nobody is sent to a closed door.
    pub(crate) async fn start(
        life: &Life,
        settings: &WorkerSettings,
        myself: &ActorRef<WorkerMessage>,
        open_door: impl FnOnce(&EngineHandle, Option<&Tier>) -> Result<(), String>,
    ) -> Result<Self, String> {
        let (host, instance) = (&life.host, life.instance);
        let name = instance.path.to_string();
        let clock = host.fabric.clock.clone();
        let started = EngineHandle::start(name, settings.factory.clone(), settings.engine.clone(), clock).await;
        let (
            engine,
            EngineOutputs {
                changes,
                evicted,
                ended,
            },
        ) = started.map_err(|error| error.to_string())?;
        let tier = match settings.engine.tier {
            true => Some(Tier {
                peers: host.peers.clone(),
                layout: engine.info().layout,
            }),
            false => None,
        };
        open_door(&engine, tier.as_ref())?;
        let actor = myself.clone();
        let watch_end = async move {
            if let Ok(reason) = ended.await {
                // A stopped actor no longer cares.
                let _gone = actor.cast(WorkerMessage::EngineEnded(reason));
            }
        };
        let mut tasks = Tasks(vec![
            tokio::spawn(watch_end).abort_handle(),
            tokio::spawn(publish_changes(life.clone(), changes)).abort_handle(),
            tokio::spawn(report_load(life.clone(), engine.clone())).abort_handle(),
            tokio::spawn(answer_snapshots(life.clone(), engine.clone())).abort_handle(),
        ]);
        if let Some(tier) = tier.clone() {
            tasks.0.push(tokio::spawn(tier.keep(evicted)).abort_handle());
        }
        let mut registration = host.registration(instance);
        registration.model = engine.info().fingerprint;
        registration.layout = engine.info().layout;
        registration.capacity = Capacity {
            requests: settings.engine.running_max + settings.engine.waiting_max,
            blocks: settings.engine.blocks,
            block_tokens: settings.engine.block_tokens,
            context: engine.info().context,
        };
        registration.folds = settings.folds.clone();
        registration.needs = settings.needs.clone();
        let _registered = host.register(registration).await?;
        engine.request_snapshot();
        Ok(Self {
            _registered,
            _tasks: tasks,
        })
    }
}

/// What the actor does about a message: the engine's death is the actor's.
pub(crate) fn on_message(life: &Life, message: WorkerMessage) -> Result<(), ractor::ActorProcessingErr> {
    let WorkerMessage::EngineEnded(reason) = message;
    life.exit.leave(Exit::EngineLost(reason.clone()));
    Err(reason.into())
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
async fn report_load(life: Life, engine: EngineHandle) {
    let subject = subjects::load(&life.host, life.instance);
    let metrics = life.host.metrics.instance(&life.instance.path.to_string());
    let mut seq = 0;
    loop {
        let sample = engine.load();
        seq += 1;
        metrics.running.set(sample.running.into());
        metrics.waiting.set(sample.waiting.into());
        metrics.pending_tokens.set(sample.pending_tokens.into());
        metrics.blocks_used.set(sample.blocks_used.into());
        metrics.blocks_cached.set(sample.blocks_cached.into());
        metrics.blocks_total.set(sample.blocks_total.into());
        metrics
            .steps
            .inc_by(sample.steps - metrics.steps.get().min(sample.steps));
        life.host
            .board
            .update(life.instance.path, |instance| instance.load = sample);
        publish(
            &life.host,
            &subject,
            &LoadReport {
                instance: life.instance,
                seq,
                sample,
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
