//! Persistent threads that share the items of one job: a fork and join of about a microsecond.
//!
//! ```text
//!   caller                         word = epoch | open? | workers inside        worker
//!   publish job, open ───────────▶ 7 | open | 0
//!                                  7 | open | 1 ◀──────────────────────────── enter (compare and swap)
//!   take items until none left                                                take items until none left
//!   close ───────────────────────▶ 7 | shut | 1
//!                                  7 | shut | 0 ◀──────────────────────────── leave, wake the caller if it sleeps
//!   return when nobody is inside
//! ```
//! A worker that did not get to run in time is not waited for: the caller takes all items itself, so a contended core
//! costs a share of the speed-up and never a stall. Nobody spins without bound: a worker without work spins for some tens
//! of microseconds, yields a few times and parks; so does a caller that waits for a worker's last item.
//! A second caller, or a job inside a job, finds the pool taken and runs its items alone.
#![expect(
    unsafe_code,
    reason = "a job borrows from its caller's stack and is run by threads that outlive it"
)]

use std::any::Any;
use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, TryLockError};
use std::thread::JoinHandle;

use crate::KernelError;
use crate::crowd::{Crowd, SPINS, lock};

/// Set in the word while a job may be entered.
const OPEN: u64 = 1 << 31;
/// The workers inside, below `OPEN`; the epoch lies above it.
const INSIDE: u64 = OPEN - 1;
type Job = *const (dyn Fn(usize) + Sync);

/// The threads. Dropping it ends them.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    /// Held while a job runs.
    taken: Mutex<()>,
    workers: Vec<JoinHandle<()>>,
}

struct Shared {
    word: AtomicU64,
    next: AtomicUsize,
    items: AtomicUsize,
    /// Written by the caller while the word is shut and nobody is inside, read by workers inside.
    job: UnsafeCell<Option<Job>>,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    stop: AtomicBool,
    parked: Crowd,
    callers: Crowd,
}

// SAFETY: `job` is written only while nobody is inside and read only by those inside; what it points to is `Sync`, and
// the caller keeps it alive until nobody is inside.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

impl Pool {
    /// `threads` of them, the caller's own included.
    pub(crate) fn new(threads: usize) -> Result<Self, KernelError> {
        let shared = Arc::new(Shared {
            word: AtomicU64::new(0),
            next: AtomicUsize::new(0),
            items: AtomicUsize::new(0),
            job: UnsafeCell::new(None),
            panic: Mutex::new(None),
            stop: AtomicBool::new(false),
            parked: Crowd::new(SPINS),
            callers: Crowd::new(SPINS),
        });
        let mut pool = Self {
            shared,
            taken: Mutex::new(()),
            workers: Vec::new(),
        };
        for index in 1..threads {
            let shared = pool.shared.clone();
            let thread = std::thread::Builder::new().name(format!("kernel-{index}"));
            let worker = thread
                .spawn(move || shared.serve())
                .map_err(|error| KernelError::Threads {
                    threads,
                    reason: error.to_string(),
                })?;
            pool.workers.push(worker);
        }
        Ok(pool)
    }

    /// Calls `run` once for every item below `items`, on any threads in any order, and returns when all are done.
    pub(crate) fn for_each(&self, items: usize, run: &(dyn Fn(usize) + Sync)) {
        let taken = match self.taken.try_lock() {
            Ok(guard) => Some(guard),
            // A job panicked, and was shut and left all the same.
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        };
        if items <= 1 || self.workers.is_empty() || taken.is_none() {
            drop(taken);
            (0..items).for_each(run);
            return;
        }
        lock(&self.shared.panic).take();
        // SAFETY: only the lifetime changes; `Visit` below does not let this function end, not even by a panic, while a
        // worker may still hold the pointer.
        let job = unsafe { std::mem::transmute::<*const (dyn Fn(usize) + Sync + '_), Job>(run) };
        let visit = Visit::open(&self.shared, items, job);
        self.shared.take_items(run);
        drop(visit);
        if let Some(panic) = lock(&self.shared.panic).take() {
            resume_unwind(panic);
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.parked.wake();
        for worker in self.workers.drain(..) {
            // A worker catches its jobs' panics, so it has nothing to report.
            let _ = worker.join();
        }
    }
}

/// An open job; dropping it shuts the job and waits until nobody is inside.
struct Visit<'a>(&'a Shared);

impl<'a> Visit<'a> {
    fn open(shared: &'a Shared, items: usize, job: Job) -> Self {
        let word = shared.word.load(Ordering::Relaxed);
        debug_assert_eq!(word & (OPEN | INSIDE), 0, "the last job is shut and left");
        // SAFETY: the word is shut and nobody is inside, so nobody reads.
        unsafe { *shared.job.get() = Some(job) };
        shared.next.store(0, Ordering::Relaxed);
        shared.items.store(items, Ordering::Relaxed);
        let epoch = (word >> 32).wrapping_add(1) << 32;
        shared.word.store(epoch | OPEN, Ordering::SeqCst);
        shared.parked.wake();
        Self(shared)
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        let shared = self.0;
        // After a panic of the caller's own item nobody needs the rest.
        shared.next.store(usize::MAX / 2, Ordering::Relaxed);
        shared.word.fetch_and(!OPEN, Ordering::SeqCst);
        shared
            .callers
            .wait_until(|| shared.word.load(Ordering::SeqCst) & INSIDE == 0);
    }
}

impl Shared {
    /// A worker's life.
    fn serve(&self) {
        let mut seen = 0;
        loop {
            let ready = |word: u64| word & OPEN != 0 && word >> 32 != seen;
            let stopped = || self.stop.load(Ordering::SeqCst);
            self.parked
                .wait_until(|| stopped() || ready(self.word.load(Ordering::SeqCst)));
            if stopped() {
                return;
            }
            let word = self.word.load(Ordering::Acquire);
            let enter = || {
                self.word
                    .compare_exchange(word, word + 1, Ordering::SeqCst, Ordering::Relaxed)
            };
            if ready(word) && enter().is_ok() {
                seen = word >> 32;
                self.work();
                self.leave();
            }
        }
    }

    /// Takes items as one inside.
    fn work(&self) {
        // SAFETY: this worker is inside, so the caller wrote the job before opening, does not write it now, and keeps
        // what it points to alive.
        let run = unsafe { (*self.job.get()).map(|job| &*job) }.expect("an open word has a job");
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.take_items(run))) {
            lock(&self.panic).get_or_insert(panic);
        }
    }

    fn take_items(&self, run: &(dyn Fn(usize) + Sync)) {
        let items = self.items.load(Ordering::Relaxed);
        loop {
            let item = self.next.fetch_add(1, Ordering::Relaxed);
            if item >= items {
                return;
            }
            run(item);
        }
    }

    fn leave(&self) {
        let word = self.word.fetch_sub(1, Ordering::SeqCst);
        if word & OPEN == 0 && word & INSIDE == 1 {
            self.callers.wake();
        }
    }
}

#[cfg(test)]
mod tests;
