//! What every implementation of discovery, documents, messaging, actor calls and request streams has to do, as checks that run
//! unchanged against the memory twins and against real servers.
//!
//! Each suite asks `make` for a fresh world before each check, as two members of it see it: two nodes of a memory world, or
//! two connections to one server under a namespace of its own. A check fails by panicking. Waiting is bounded in tokio's
//! time, so that a paused clock makes it free; nothing asserts that something does *not* happen by waiting for it.

mod directory;
mod discovery;
mod documents;
mod messaging;
mod streams;

use std::{future::Future, time::Duration};

pub use directory::{DirectoryMembers, directory};
pub use discovery::discovery;
pub use documents::documents;
pub use messaging::messaging;
pub use streams::{StreamMembers, streams};

/// Longer than anything here takes, also on a busy machine with real servers.
const PATIENCE: Duration = Duration::from_secs(20);

/// What `work` comes to; panics when it takes too long.
async fn soon<T>(work: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(PATIENCE, work).await;
    done.expect("it should have happened by now")
}

/// Waits until `condition` holds.
async fn until(condition: impl Fn() -> bool) {
    soon(async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
}
