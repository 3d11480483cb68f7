//! The cluster clock: the only place where time enters. Everything above asks a [`Clock`], so a test or a simulation can
//! hand in its own; [`SystemClock`] runs on tokio's time and therefore also stands still when a test pauses it.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    time::{Duration, SystemTime},
};

use cluster_messages::Deadline;
use tokio::time::Instant;

/// A wait that [`Clock::sleep`] started.
pub type Sleep = Pin<Box<dyn Future<Output = ()> + Send + Sync>>;

/// Tells the time and waits.
pub trait Clock: Send + Sync + 'static {
    /// Milliseconds of the cluster clock. Never goes back within one process; clocks of two machines are not compared.
    fn now(&self) -> u64;

    /// Completes after `duration` of this clock.
    fn sleep(&self, duration: Duration) -> Sleep;

    /// What is left until `deadline`; zero when it has passed.
    fn remaining(&self, deadline: Deadline) -> Duration {
        Duration::from_millis(deadline.0.saturating_sub(self.now()))
    }

    /// The deadline that lies `duration` ahead.
    fn deadline_in(&self, duration: Duration) -> Deadline {
        let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        Deadline(self.now().saturating_add(millis))
    }
}

/// The deadline passed before the work was done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the deadline passed")]
pub struct Elapsed;

/// What is left until `deadline`; zero when it has passed.
pub fn remaining(clock: &dyn Clock, deadline: Deadline) -> Duration {
    clock.remaining(deadline)
}

/// Runs `work` until `deadline` of `clock` at the latest. Work that is ready at once is done even when the deadline has
/// passed.
pub async fn before<T>(clock: &dyn Clock, deadline: Deadline, work: impl Future<Output = T>) -> Result<T, Elapsed> {
    tokio::select! {
        biased;
        done = work => Ok(done),
        () = clock.sleep(clock.remaining(deadline)) => Err(Elapsed),
    }
}

/// Real time: milliseconds since 1970 when the clock was made, then tokio's monotonic time.
#[derive(Clone)]
pub struct SystemClock {
    origin: Instant,
    origin_ms: u64,
}

impl SystemClock {
    /// A clock that starts at the time of day.
    pub fn new() -> Self {
        let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Self::starting_at(since_epoch.map_or(0, |time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)))
    }

    /// A clock that shows `millis` now: a run that must be repeatable starts at a time of its own.
    pub fn starting_at(millis: u64) -> Self {
        Self {
            origin: Instant::now(),
            origin_ms: millis,
        }
    }

    /// The same, ready to be shared.
    pub fn shared() -> Arc<dyn Clock> {
        Arc::new(Self::new())
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for SystemClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SystemClock({} ms)", self.now())
    }
}

impl Clock for SystemClock {
    fn now(&self) -> u64 {
        let elapsed = u64::try_from(self.origin.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.origin_ms.saturating_add(elapsed)
    }

    fn sleep(&self, duration: Duration) -> Sleep {
        Box::pin(tokio::time::sleep(duration))
    }
}

#[cfg(test)]
mod tests;
