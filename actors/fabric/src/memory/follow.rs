//! Following a store: a snapshot, then changes, and a new snapshot for whoever fell behind.

use std::sync::Arc;

use futures::{Stream, stream};
use tokio::sync::broadcast::{Receiver, error::RecvError};

/// How many changes wait for a slow follower before it gets a snapshot instead.
pub(super) const BACKLOG: usize = 256;

/// A store whose changes can be followed.
pub(super) trait Followed: Send + Sync + 'static {
    /// A change, or a snapshot.
    type Change: Clone + Send + 'static;

    /// A snapshot and everything after it, taken at one moment.
    fn begin(&self) -> (Self::Change, Receiver<Self::Change>);
}

/// The snapshot of now, then what changes.
pub(super) fn follow<S: Followed>(store: Arc<S>) -> impl Stream<Item = S::Change> + Send {
    // Begin before the first poll: what happens after the call must not be missed.
    let (snapshot, changes) = store.begin();
    stream::unfold((store, changes, Some(snapshot)), |(store, changes, first)| async move {
        match first {
            Some(snapshot) => Some((snapshot, (store, changes, None))),
            None => {
                let (change, changes) = next(&*store, changes).await?;
                Some((change, (store, changes, None)))
            }
        }
    })
}

async fn next<S: Followed>(store: &S, mut changes: Receiver<S::Change>) -> Option<(S::Change, Receiver<S::Change>)> {
    match changes.recv().await {
        Ok(change) => Some((change, changes)),
        Err(RecvError::Lagged(_)) => Some(store.begin()),
        Err(RecvError::Closed) => None,
    }
}
