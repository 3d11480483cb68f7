//! Threads that wait for something: they spin a little, yield a little, then park. It does not know what they wait for.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Pauses before the first yield that suit threads with a core each, about 50 µs.
pub(crate) const SPINS: u32 = 1000;
/// Yields before parking.
const YIELDS: u32 = 8;

/// The place where they wait.
pub(crate) struct Crowd {
    spins: u32,
    asleep: AtomicUsize,
    door: Mutex<()>,
    bell: Condvar,
}

impl Crowd {
    /// Threads pause `spins` times before they yield; zero where others need their core.
    pub(crate) fn new(spins: u32) -> Self {
        Self {
            spins,
            asleep: AtomicUsize::new(0),
            door: Mutex::new(()),
            bell: Condvar::new(),
        }
    }

    /// Returns once it has happened.
    pub(crate) fn wait_until(&self, happened: impl Fn() -> bool) {
        for round in 0..self.spins + YIELDS {
            if happened() {
                return;
            }
            if round < self.spins {
                std::hint::spin_loop()
            } else {
                std::thread::yield_now()
            }
        }
        let mut guard = lock(&self.door);
        // Announced before the last look, so that whoever makes it happen later sees a sleeper.
        self.asleep.fetch_add(1, Ordering::SeqCst);
        while !happened() {
            guard = self.bell.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        self.asleep.fetch_sub(1, Ordering::SeqCst);
    }

    /// To be called after what the crowd waits for has happened.
    pub(crate) fn wake(&self) {
        if self.asleep.load(Ordering::SeqCst) > 0 {
            drop(lock(&self.door));
            self.bell.notify_all();
        }
    }
}

/// For locks whose contents a panic cannot leave half changed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
