//! The thread that drives one engine, and the handle by which actors talk to it.
//!
//! ```text
//!  actor tasks ──commands──▶ thread: loop { take commands; engine.step } ──events──▶ one channel per job
//!                                                                        ──blocks──▶ the worker's publisher
//!                                                                        ──evicted─▶ the worker's tier pump
//! ```
//! No network I/O happens on the thread. Commands and job events travel through unbounded channels whose length is bounded
//! by what admission let in: a job has at most one event per token and one command per page. Block changes may overflow;
//! then a flag asks for a snapshot, which heals the loss.

use std::{
    any::Any,
    collections::HashMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use cluster_engine::{Config, Engine, Event, Job, JobId, JobKind, ModelError, ModelFactory, ModelInfo};
use cluster_fabric::Clock;
use cluster_messages::{BlockHash, CachedPage, Generation, KvEventKind, RequestError, SamplePoint, TokenOut};
use tokio::{
    runtime::Handle,
    sync::{mpsc, oneshot},
};

use crate::failure;

/// Block changes waiting to be published; beyond this many a snapshot replaces them.
const CHANGES_MAX: usize = 1024;
/// Evicted pages waiting for the cache actor; beyond this many they are dropped, which costs time, never correctness.
const EVICTED_MAX: usize = 256;

enum Command {
    Submit {
        job: Job,
        events: mpsc::UnboundedSender<Event>,
        accepted: oneshot::Sender<Result<(), RequestError>>,
    },
    Abort(JobId),
    Import {
        job: JobId,
        page: u32,
        bytes: Bytes,
    },
    Start {
        job: JobId,
        first: TokenOut,
        cached_tokens: u32,
    },
    Provide {
        job: JobId,
        pages: Vec<Bytes>,
    },
    Supply {
        job: JobId,
        media: Vec<(u32, Arc<[f32]>)>,
    },
    Snapshot,
}

/// What the host of the thread hears besides job events.
pub(crate) struct EngineOutputs {
    /// Changes of what the prefix cache holds, in order, without gaps (a lost change is followed by a snapshot).
    pub(crate) changes: mpsc::Receiver<KvEventKind>,
    /// Pages that left the device.
    pub(crate) evicted: mpsc::Receiver<CachedPage>,
    /// Resolves when the thread ended: the panic or error that ended it.
    pub(crate) ended: oneshot::Receiver<String>,
}

/// What an engine says about itself after a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct EngineReport {
    /// How busy it is, and how many steps it has made.
    pub(crate) load: SamplePoint,
    /// Prompt tokens of jobs that were looked up in the prefix cache.
    pub(crate) lookup_tokens: u64,
    /// Of these, found.
    pub(crate) hit_tokens: u64,
    /// Sequences that lost their pages.
    pub(crate) preemptions: u64,
}

/// Talks to one engine thread. The thread ends when the last clone is gone.
#[derive(Clone)]
pub(crate) struct EngineHandle {
    commands: mpsc::UnboundedSender<Command>,
    jobs: Arc<AtomicU64>,
    report: Arc<Mutex<EngineReport>>,
    info: Arc<ModelInfo>,
}

impl EngineHandle {
    /// Builds the model on a new thread and starts stepping.
    pub(crate) async fn start(
        name: String,
        factory: ModelFactory,
        config: Config,
        clock: Arc<dyn Clock>,
    ) -> Result<(Self, EngineOutputs), ModelError> {
        let (commands, inbox) = mpsc::unbounded_channel();
        let (changes_in, changes) = mpsc::channel(CHANGES_MAX);
        let (evicted_in, evicted) = mpsc::channel(EVICTED_MAX);
        let (ended_in, ended) = oneshot::channel();
        let (built_in, built) = oneshot::channel();
        let report = Arc::new(Mutex::new(EngineReport::default()));
        let shared_report = report.clone();
        let runtime = Handle::current();
        let drive = move || {
            let engine = match factory().and_then(|model| Engine::new(model, config)) {
                Ok(engine) => engine,
                Err(error) => return drop(built_in.send(Err(error))),
            };
            let mut driver = Driver {
                engine,
                clock,
                inbox,
                jobs: HashMap::new(),
                events: Vec::new(),
                changes: changes_in,
                snapshot_due: false,
                evicted: evicted_in,
                runtime,
                lookup_tokens: 0,
                hit_tokens: 0,
                report: shared_report,
            };
            driver.share_report();
            drop(built_in.send(Ok(driver.engine.info().clone())));
            let reason = match catch_unwind(AssertUnwindSafe(|| driver.run())) {
                Ok(Ok(())) => return,
                Ok(Err(error)) => error.to_string(),
                Err(panic) => panic_text(panic.as_ref()),
            };
            drop(ended_in.send(reason));
        };
        std::thread::Builder::new()
            .name(name)
            .spawn(drive)
            .map_err(|error| ModelError::Failed(format!("no thread for the engine: {error}")))?;
        let info = built
            .await
            .map_err(|_| ModelError::Failed("the model panicked while it was built".into()))??;
        let handle = Self {
            commands,
            jobs: Arc::default(),
            report,
            info: Arc::new(info),
        };
        Ok((
            handle,
            EngineOutputs {
                changes,
                evicted,
                ended,
            },
        ))
    }

    /// Constant facts of the model.
    pub(crate) fn info(&self) -> &ModelInfo {
        &self.info
    }

    /// What it said after the last step. A frozen engine shows as `steps` that do not grow while requests wait.
    pub(crate) fn report(&self) -> EngineReport {
        *self.report.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Hands in a job; returns when the engine has taken or refused it.
    pub(crate) async fn submit(&self, generation: Generation, kind: JobKind) -> Result<RunningJob, RequestError> {
        let id = JobId(self.jobs.fetch_add(1, Ordering::Relaxed));
        let (events_in, events) = mpsc::unbounded_channel();
        let (accepted_in, accepted) = oneshot::channel();
        let job = Job { id, generation, kind };
        self.send(Command::Submit {
            job,
            events: events_in,
            accepted: accepted_in,
        })?;
        // From here on dropping `running` aborts the job, also while the answer is awaited.
        let running = RunningJob {
            id,
            events,
            commands: self.commands.clone(),
        };
        accepted.await.map_err(|_| lost())??;
        Ok(running)
    }

    /// Asks for a snapshot among the changes.
    pub(crate) fn request_snapshot(&self) {
        // A closed channel means that the thread ended, which the host hears through `ended`.
        let _closed = self.send(Command::Snapshot);
    }

    fn send(&self, command: Command) -> Result<(), RequestError> {
        self.commands.send(command).map_err(|_| lost())
    }
}

/// A job the engine has taken. Dropping it aborts the job and frees its blocks.
pub(crate) struct RunningJob {
    id: JobId,
    events: mpsc::UnboundedReceiver<Event>,
    commands: mpsc::UnboundedSender<Command>,
}

impl RunningJob {
    /// The next event; an error when the engine died.
    pub(crate) async fn next(&mut self) -> Result<Event, RequestError> {
        self.events.recv().await.ok_or_else(lost)
    }

    /// An event that is there already.
    pub(crate) fn ready(&mut self) -> Option<Event> {
        self.events.try_recv().ok()
    }

    /// Hands a page of a `Decode` job to the engine.
    pub(crate) fn import(&self, page: u32, bytes: Bytes) -> Result<(), RequestError> {
        self.send(Command::Import {
            job: self.id,
            page,
            bytes,
        })
    }

    /// Lets a `Decode` job go on from its first token.
    pub(crate) fn start(&self, first: TokenOut, cached_tokens: u32) -> Result<(), RequestError> {
        self.send(Command::Start {
            job: self.id,
            first,
            cached_tokens,
        })
    }

    /// Answers a lookup.
    pub(crate) fn provide(&self, pages: Vec<Bytes>) -> Result<(), RequestError> {
        self.send(Command::Provide { job: self.id, pages })
    }

    /// Hands over the rows of media that were asked for, by their index.
    pub(crate) fn supply(&self, media: Vec<(u32, Arc<[f32]>)>) -> Result<(), RequestError> {
        self.send(Command::Supply { job: self.id, media })
    }

    fn send(&self, command: Command) -> Result<(), RequestError> {
        self.commands.send(command).map_err(|_| lost())
    }
}

impl Drop for RunningJob {
    fn drop(&mut self) {
        // Aborting a job that has ended is harmless; a closed channel means that nothing is left to abort.
        let _closed = self.commands.send(Command::Abort(self.id));
    }
}

fn lost() -> RequestError {
    failure::lost("the worker of this request ended")
}

pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "panic without a text".into())
}

struct Driver {
    engine: Engine,
    clock: Arc<dyn Clock>,
    inbox: mpsc::UnboundedReceiver<Command>,
    jobs: HashMap<JobId, HostedJob>,
    events: Vec<Event>,
    changes: mpsc::Sender<KvEventKind>,
    snapshot_due: bool,
    evicted: mpsc::Sender<CachedPage>,
    /// For waiting on two channels at once.
    runtime: Handle,
    lookup_tokens: u64,
    hit_tokens: u64,
    report: Arc<Mutex<EngineReport>>,
}

/// A job as the thread knows it.
struct HostedJob {
    events: mpsc::UnboundedSender<Event>,
    tokens: usize,
}

impl Driver {
    /// Runs until every handle is gone.
    fn run(&mut self) -> Result<(), ModelError> {
        loop {
            if !self.engine.has_work() && !self.wait() {
                return Ok(());
            }
            while let Ok(command) = self.inbox.try_recv() {
                self.obey(command);
            }
            let stepped = self.engine.step(self.clock.now(), &mut self.events)?;
            self.deliver();
            self.share_report();
            if stepped.cost_us > 0 {
                // A model without weights says how long a step of the real one would take.
                std::thread::sleep(Duration::from_micros(stepped.cost_us));
            }
        }
    }

    /// Waits for a command, or for room for a snapshot that is due. False when every handle is gone.
    fn wait(&mut self) -> bool {
        let (inbox, changes, is_due) = (&mut self.inbox, &self.changes, self.snapshot_due);
        let woken = self.runtime.block_on(async {
            tokio::select! {
                biased;
                command = inbox.recv() => Some(command),
                _room_or_closed = changes.reserve(), if is_due => None,
            }
        });
        match woken {
            None => true,
            Some(None) => false,
            Some(Some(command)) => {
                self.obey(command);
                true
            }
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Submit { job, events, accepted } => {
                let (id, tokens) = (job.id, job.generation.tokens.len());
                let answer = self.engine.submit(job, self.clock.now());
                if answer.is_ok() {
                    self.jobs.insert(id, HostedJob { events, tokens });
                }
                // Nobody waits any longer: the abort that its dropped job sent is behind this in the queue.
                let _gone = accepted.send(answer);
            }
            Command::Abort(job) => {
                self.engine.abort(job);
                self.jobs.remove(&job);
                self.share_report();
            }
            Command::Import { job, page, bytes } => {
                let outcome = self
                    .engine
                    .import_page(job, page, &bytes)
                    .map_err(|error| error.to_string());
                self.fail_on_error(job, outcome);
            }
            Command::Start {
                job,
                first,
                cached_tokens,
            } => {
                let outcome = self
                    .engine
                    .start(job, first, cached_tokens)
                    .map_err(|error| error.to_string());
                self.fail_on_error(job, outcome);
            }
            Command::Provide { job, pages } => {
                let outcome = self.engine.provide(job, pages).map_err(|error| error.to_string());
                self.fail_on_error(job, outcome);
            }
            Command::Supply { job, media } => {
                let outcome = self.engine.supply(job, media).map_err(|error| error.to_string());
                self.fail_on_error(job, outcome);
            }
            Command::Snapshot => self.snapshot_due = true,
        }
    }

    fn fail_on_error(&mut self, job: JobId, outcome: Result<(), String>) {
        let Err(message) = outcome else { return };
        self.engine.abort(job);
        if let Some(hosted) = self.jobs.remove(&job) {
            let error = failure::lost(message);
            let _gone = hosted.events.send(Event::Failed { job, error });
        }
    }

    fn deliver(&mut self) {
        for event in std::mem::take(&mut self.events) {
            match event {
                Event::Stored(hashes) => self.change(KvEventKind::Stored(hashes)),
                Event::Removed(hashes) => self.change(KvEventKind::Removed(hashes)),
                Event::Evicted { hash, bytes } => {
                    let _full = self.evicted.try_send(CachedPage { hash, bytes });
                }
                event => self.tell(event),
            }
        }
        if self.snapshot_due {
            self.snapshot_due = false;
            let held: Vec<BlockHash> = self.engine.held();
            self.change(KvEventKind::Snapshot(held));
        }
    }

    fn change(&mut self, change: KvEventKind) {
        if let Err(mpsc::error::TrySendError::Full(_)) = self.changes.try_send(change) {
            self.snapshot_due = true;
        }
    }

    fn tell(&mut self, event: Event) {
        let Some(job) = job_of(&event) else { return };
        let ended = matches!(
            event,
            Event::Finished { .. } | Event::Prefilled { .. } | Event::Failed { .. }
        );
        if let Some(hosted) = self.jobs.get(&job) {
            if let Event::Admitted { cached_tokens, .. } = event {
                self.lookup_tokens += hosted.tokens as u64;
                self.hit_tokens += u64::from(cached_tokens);
            }
            // A receiver that is gone has its abort in the queue.
            let _gone = hosted.events.send(event);
        }
        if ended {
            self.jobs.remove(&job);
        }
    }

    fn share_report(&self) {
        let report = EngineReport {
            load: self.engine.load(self.clock.now()),
            lookup_tokens: self.lookup_tokens,
            hit_tokens: self.hit_tokens,
            preemptions: self.engine.counters().preemptions,
        };
        *self.report.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = report;
    }
}

fn job_of(event: &Event) -> Option<JobId> {
    match event {
        Event::Admitted { job, .. }
        | Event::Reserved { job, .. }
        | Event::Lookup { job, .. }
        | Event::Features { job, .. }
        | Event::Page { job, .. }
        | Event::Prompt { job, .. }
        | Event::Tokens { job, .. }
        | Event::Prefilled { job, .. }
        | Event::Finished { job, .. }
        | Event::Failed { job, .. } => Some(*job),
        Event::Stored(_) | Event::Removed(_) | Event::Evicted { .. } => None,
    }
}

#[cfg(test)]
mod tests;
