//! Files in, embeddings out: what an encoder instance and a worker that encodes for itself have in common.
//!
//! ```text
//!  encode(digest, file) ─ kept? ──────────────────────────────────────────────▶ embeddings
//!                       ─ on its way? ─ wait with the others ──────────────────▶
//!                       ─ else: room reserved ▶ decoded (bounded pool) ▶ batch ▶ kept
//! ```
//! The work for a digest is a task of its own, the *flight*, which nobody owns and everybody who waits for it keeps alive: whoever
//! asked first may leave. When the last one leaves it ends wherever it is, and its room is given back. Deadlines are looked at
//! before each costly part. No lock is held while anything waits.

mod batch;
mod driver;

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use cluster_engine::{MediaInfo, ModelError};
use cluster_fabric::{Clock, clock::before};
use cluster_messages::{Deadline, ErrorKind, Features, MediaFile, MediumDigest, RequestError, RequestId, SamplePoint};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch},
    task::AbortHandle,
};

use self::driver::{Driver, Item, Progress};
use crate::{
    engine_host::EngineReport,
    failure,
    feature_store::{FeatureStore, Holds},
    media::{EncoderSettings, MediaDecode, OwnedMedium},
};

#[cfg(test)]
mod tests;

/// When whoever found no room should come back.
const RETRY_AFTER_MS: u32 = 1000;

/// What is to be encoded, and for whom.
pub(crate) struct Work {
    pub(crate) request: RequestId,
    pub(crate) deadline: Deadline,
    pub(crate) digest: MediumDigest,
    pub(crate) file: MediaFile,
    /// Rows that must come out.
    pub(crate) rows: u32,
    /// Until when the result is to be kept for the request.
    pub(crate) hold: Option<Deadline>,
}

impl Work {
    fn hold(&self) -> Option<(RequestId, u64)> {
        self.hold.map(|until| (self.request, until.0))
    }
}

/// Embeddings that are there.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) features: Features,
    /// Whether they were there already, or on their way for somebody else.
    pub(crate) was_cached: bool,
}

type Outcome = Result<Features, RequestError>;

/// Encodes media. Clones share it; it ends when the last is gone, or its owner.
#[derive(Clone)]
pub(crate) struct MediaEngine {
    inner: Arc<Inner>,
}

/// Keeps a media engine running; all its work ends when this is dropped.
pub(crate) struct MediaEngineOwner {
    inner: Arc<Inner>,
    driver: AbortHandle,
    ended: oneshot::Receiver<String>,
}

impl MediaEngineOwner {
    /// Waits until the model fails: why. None when there is nobody left to work for.
    pub(crate) async fn ended(&mut self) -> Option<String> {
        (&mut self.ended).await.ok()
    }
}

impl Drop for MediaEngineOwner {
    fn drop(&mut self) {
        self.driver.abort();
        for (_, flight) in self.inner.state().flights.drain() {
            flight.task.abort();
        }
    }
}

struct Inner {
    clock: Arc<dyn Clock>,
    decode: Arc<dyn MediaDecode>,
    info: MediaInfo,
    /// Bounds the decoded media that wait for their batch.
    decoded: Arc<Semaphore>,
    /// Bounds the files that are being decoded.
    decoding: Arc<Semaphore>,
    /// Not longer than `decoded` allows.
    decoded_media: mpsc::UnboundedSender<Item>,
    progress: Arc<Progress>,
    state: Mutex<State>,
}

struct State {
    store: FeatureStore,
    flights: HashMap<MediumDigest, Flight>,
    flights_begun: u64,
    lookup_rows: u64,
    hit_rows: u64,
}

/// The work for one digest.
struct Flight {
    /// Tells it from earlier ones for the same digest.
    number: u64,
    waiters: u32,
    holds: Holds,
    deadline: Arc<AtomicU64>,
    outcome: watch::Receiver<Option<Outcome>>,
    task: AbortHandle,
    rows: u32,
    bytes: usize,
    begun_ms: u64,
}

/// What a flight's task works on.
struct Errand {
    digest: MediumDigest,
    number: u64,
    file: MediaFile,
    rows: u32,
    deadline: Arc<AtomicU64>,
}

impl MediaEngine {
    /// Builds the media model and starts to serve.
    pub(crate) async fn start(
        settings: &EncoderSettings,
        clock: Arc<dyn Clock>,
    ) -> Result<(Self, MediaEngineOwner), ModelError> {
        let factory = settings.factory.clone();
        let built = tokio::task::spawn_blocking(move || factory()).await;
        let encoder = built.map_err(|_| ModelError::Failed("the media model panicked while it was built".into()))??;
        let (decoded_media, inbox) = mpsc::unbounded_channel();
        let progress = Arc::new(Progress::default());
        let batch_max = settings.batch_max.max(1) as usize;
        let driver = Driver {
            clock: clock.clone(),
            inbox,
            queue: VecDeque::new(),
            batch_max,
            batch_rows: settings.batch_rows,
            progress: progress.clone(),
        };
        let inner = Arc::new(Inner {
            clock,
            decode: settings.decode.clone(),
            info: encoder.info(),
            // One batch runs while the next one is made ready.
            decoded: Arc::new(Semaphore::new(2 * batch_max)),
            decoding: Arc::new(Semaphore::new(settings.threads.max(1) as usize)),
            decoded_media,
            progress,
            state: Mutex::new(State {
                store: FeatureStore::new(settings.cache_bytes),
                flights: HashMap::new(),
                flights_begun: 0,
                lookup_rows: 0,
                hit_rows: 0,
            }),
        });
        let (ended_in, ended) = oneshot::channel();
        let drive = async move {
            if let Err(reason) = driver.run(encoder).await {
                let _nobody_asks = ended_in.send(reason);
            }
        };
        let owner = MediaEngineOwner {
            inner: inner.clone(),
            driver: tokio::spawn(drive).abort_handle(),
            ended,
        };
        Ok((Self { inner }, owner))
    }

    /// Constant facts of the model.
    pub(crate) fn info(&self) -> MediaInfo {
        self.inner.info
    }

    /// Has embeddings made, or finds them. Dropping the future takes the interest back.
    pub(crate) async fn encode(&self, work: Work) -> Result<Ready, RequestError> {
        let clock = self.inner.clock.clone();
        if clock.remaining(work.deadline).is_zero() {
            return Err(late("it was looked at"));
        }
        let deadline = work.deadline;
        let mut interest = match self.inner.find_or_join(work)? {
            Found::Kept(features) => {
                return Ok(Ready {
                    features,
                    was_cached: true,
                });
            }
            Found::OnItsWay(interest) => interest,
        };
        let outcome = interest.outcome.wait_for(Option::is_some);
        let outcome = before(&*clock, deadline, outcome).await;
        let outcome = match outcome {
            Err(_) => return Err(late("it was encoded")),
            // The flight's task was ended with the engine.
            Ok(Err(_)) => return Err(failure::lost("the media encoder ended")),
            Ok(Ok(outcome)) => outcome.clone().expect("waited for"),
        };
        Ok(Ready {
            features: outcome?,
            was_cached: interest.was_cached,
        })
    }

    /// Embeddings that are kept. `request` needs them until then at most, however long it was promised more.
    pub(crate) fn fetch(&self, digest: MediumDigest, request: RequestId, until: Deadline) -> Option<Features> {
        let mut state = self.inner.state();
        let features = state.store.find(digest, None)?;
        state.store.shorten(digest, request, until.0);
        Some(features)
    }

    /// Grows as long as anything gets on.
    pub(crate) fn steps(&self) -> u64 {
        self.inner.progress.steps.load(Ordering::Relaxed)
    }

    /// How busy it is, and what was found so far, in rows.
    pub(crate) fn report(&self) -> EngineReport {
        let now_ms = self.inner.clock.now();
        let mut state = self.inner.state();
        state.store.expire(now_ms);
        let flights = state.flights.values();
        let running = self.inner.progress.running.load(Ordering::Relaxed);
        let inside: u32 = flights.clone().map(|flight| flight.waiters).sum();
        let oldest_ms = flights.clone().map(|flight| flight.begun_ms).min();
        EngineReport {
            load: SamplePoint {
                running,
                waiting: inside.saturating_sub(running),
                pending_tokens: flights.map(|flight| flight.rows).sum(),
                steps: self.steps(),
                oldest_waiting_ms: oldest_ms.map_or(0, |begun_ms| now_ms.saturating_sub(begun_ms) as u32),
                ..SamplePoint::default()
            },
            lookup_tokens: state.lookup_rows,
            hit_tokens: state.hit_rows,
            preemptions: 0,
        }
    }
}

enum Found {
    Kept(Features),
    OnItsWay(Interest),
}

/// A share in a flight. The last one to be dropped ends it.
struct Interest {
    inner: Arc<Inner>,
    digest: MediumDigest,
    number: u64,
    outcome: watch::Receiver<Option<Outcome>>,
    was_cached: bool,
}

impl Drop for Interest {
    fn drop(&mut self) {
        let mut state = self.inner.state();
        let Some(flight) = state.flight(self.digest, self.number) else {
            return;
        };
        flight.waiters -= 1;
        if flight.waiters == 0 {
            let flight = state.flights.remove(&self.digest).expect("it was just found");
            flight.task.abort();
            state.store.release(flight.bytes);
        }
    }
}

impl State {
    fn flight(&mut self, digest: MediumDigest, number: u64) -> Option<&mut Flight> {
        let flight = self.flights.get_mut(&digest)?;
        (flight.number == number).then_some(flight)
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find_or_join(self: &Arc<Self>, work: Work) -> Result<Found, RequestError> {
        let mut state = self.state();
        state.lookup_rows += u64::from(work.rows);
        let hold = work.hold();
        if let Some(features) = state.store.find(work.digest, hold) {
            state.hit_rows += u64::from(work.rows);
            return Ok(Found::Kept(features));
        }
        let digest = work.digest;
        let is_on_its_way = state.flights.contains_key(&digest);
        if is_on_its_way {
            state.hit_rows += u64::from(work.rows);
        } else {
            self.begin(&mut state, &work)?;
        }
        let flight = state.flights.get_mut(&digest).expect("it was there or has just begun");
        flight.waiters += 1;
        flight.holds.extend(hold);
        flight.deadline.fetch_max(work.deadline.0, Ordering::Relaxed);
        Ok(Found::OnItsWay(Interest {
            inner: self.clone(),
            digest,
            number: flight.number,
            outcome: flight.outcome.clone(),
            was_cached: is_on_its_way,
        }))
    }

    fn begin(self: &Arc<Self>, state: &mut State, work: &Work) -> Result<(), RequestError> {
        let now_ms = self.clock.now();
        let bytes = work.rows as usize * self.info.width as usize * size_of::<f32>();
        if !state.store.could_keep(bytes) {
            let message = format!("{bytes} bytes of embeddings do not fit this encoder's memory");
            return Err(RequestError::new(ErrorKind::Invalid, message));
        }
        state
            .store
            .reserve(bytes, now_ms)
            .map_err(|full| RequestError::new(ErrorKind::Overloaded, full.to_string()).retry_after(RETRY_AFTER_MS))?;
        state.flights_begun += 1;
        let errand = Errand {
            digest: work.digest,
            number: state.flights_begun,
            file: work.file.clone(),
            rows: work.rows,
            deadline: Arc::new(AtomicU64::new(work.deadline.0)),
        };
        let (outcome_in, outcome) = watch::channel(None);
        let (number, deadline) = (errand.number, errand.deadline.clone());
        let task = tokio::spawn(self.clone().fly(errand, outcome_in)).abort_handle();
        let flight = Flight {
            number,
            waiters: 0,
            holds: Holds::new(),
            deadline,
            outcome,
            task,
            rows: work.rows,
            bytes,
            begun_ms: now_ms,
        };
        state.flights.insert(work.digest, flight);
        Ok(())
    }

    async fn fly(self: Arc<Self>, errand: Errand, outcome_in: watch::Sender<Option<Outcome>>) {
        let (digest, number) = (errand.digest, errand.number);
        let outcome = self.make(errand).await;
        self.land(digest, number, &outcome);
        outcome_in.send_replace(Some(outcome));
    }

    async fn make(&self, errand: Errand) -> Outcome {
        let never_closed = "these semaphores are never closed";
        let room = self.decoded.clone().acquire_owned().await.expect(never_closed);
        let turn = self.decoding.clone().acquire_owned().await.expect(never_closed);
        self.check(&errand, "it was decoded")?;
        let medium = self.decode(errand.file.clone(), turn).await?;
        self.progress.steps.fetch_add(1, Ordering::Relaxed);
        let (reply, answer) = oneshot::channel();
        let item = Item {
            medium,
            rows: errand.rows,
            deadline: errand.deadline,
            reply,
            _room: room,
        };
        let ended = || failure::lost("the media encoder ended");
        self.decoded_media.send(item).map_err(|_| ended())?;
        answer.await.map_err(|_| ended())?
    }

    /// What was begun is decoded to its end, and keeps its turn that long, also when nobody waits any longer.
    async fn decode(&self, file: MediaFile, turn: OwnedSemaphorePermit) -> Result<OwnedMedium, RequestError> {
        let decode = self.decode.clone();
        let work = move || {
            let decoded = decode.decode(&file);
            drop(turn);
            decoded
        };
        let decoded = tokio::task::spawn_blocking(work).await;
        decoded.unwrap_or_else(|_| Err(RequestError::new(ErrorKind::Internal, "decoding the file failed")))
    }

    fn check(&self, errand: &Errand, what: &str) -> Result<(), RequestError> {
        let deadline = Deadline(errand.deadline.load(Ordering::Relaxed));
        if self.clock.remaining(deadline).is_zero() {
            return Err(late(what));
        }
        Ok(())
    }

    /// A flight came to its end: what it brought is kept for all who waited.
    fn land(&self, digest: MediumDigest, number: u64, outcome: &Outcome) {
        let mut state = self.state();
        if state.flight(digest, number).is_none() {
            // Nobody waits, and the room has been given back.
            return;
        }
        let flight = state.flights.remove(&digest).expect("it was just found");
        match outcome {
            Ok(features) => state.store.insert(digest, features.clone(), flight.bytes, flight.holds),
            Err(_) => state.store.release(flight.bytes),
        }
    }
}

fn late(before_what: &str) -> RequestError {
    RequestError::new(
        ErrorKind::Deadline,
        format!("the deadline of a picture or sound passed before {before_what}"),
    )
}
