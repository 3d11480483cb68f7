//! Admission at the door. The mailboxes of the actor library are unbounded, so whoever lets work in takes a credit first
//! and keeps it while the work lasts: what is inside is bounded, and whoever comes too many is told so at once.

use std::{fmt, sync::Arc};

use cluster_messages::{ErrorKind, RequestError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError};

/// A bounded number of places. Clones share them.
#[derive(Clone)]
pub struct Credits {
    places: Arc<Semaphore>,
    total: u32,
    retry_after_ms: u32,
}

/// The right to be inside; dropping it gives the places back.
#[derive(Debug)]
pub struct Credit {
    _places: OwnedSemaphorePermit,
}

impl Credits {
    /// `total` places; who finds none is told to come back after `retry_after_ms`.
    pub fn new(total: u32, retry_after_ms: u32) -> Self {
        Self {
            places: Arc::new(Semaphore::new(total as usize)),
            total,
            retry_after_ms,
        }
    }

    /// Takes one place, or says at once that all are taken (`Overloaded`) or that the door is closed (`Unavailable`).
    pub fn try_take(&self) -> Result<Credit, RequestError> {
        self.try_take_many(1)
    }

    /// Takes `count` places or none.
    pub fn try_take_many(&self, count: u32) -> Result<Credit, RequestError> {
        match self.places.clone().try_acquire_many_owned(count) {
            Ok(places) => Ok(Credit { _places: places }),
            Err(TryAcquireError::NoPermits) => {
                let message = format!("{} of {} places are taken", self.in_use(), self.total);
                Err(RequestError::new(ErrorKind::Overloaded, message).retry_after(self.retry_after_ms))
            }
            Err(TryAcquireError::Closed) => {
                let message = "the instance is draining and takes no new work";
                Err(RequestError::new(ErrorKind::Unavailable, message).retry_after(self.retry_after_ms))
            }
        }
    }

    /// Lets nobody in any more. Credits already taken stay valid.
    pub fn close(&self) {
        self.places.close();
    }

    /// How many places are taken: the gauge.
    pub fn in_use(&self) -> u32 {
        let free = u32::try_from(self.places.available_permits()).unwrap_or(u32::MAX);
        self.total.saturating_sub(free)
    }

    /// How many places there are.
    pub fn total(&self) -> u32 {
        self.total
    }
}

impl fmt::Debug for Credits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credits({} of {})", self.in_use(), self.total)
    }
}

#[cfg(test)]
mod tests;
