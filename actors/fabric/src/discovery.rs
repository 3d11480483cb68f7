//! Who is there: registrations under leases, epochs, and the documents of the control plane. Behind the traits stands a
//! store such as etcd, or its in-memory twin. Truth that survives lives here; nothing here is on a request's path.

mod documents;
mod lease;
mod watch;

use std::time::Duration;

use async_trait::async_trait;
use cluster_messages::{ActorPath, Epoch, InstanceRef, Registration};

pub use documents::{Document, DocumentChange, DocumentWatch, Documents, Revision};
pub use lease::{Lease, LeaseKeeper};
pub use watch::{Change, Watch};

/// Why the store did not do what was asked.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DiscoveryError {
    /// A life that is not newer than one already known. Ask for the next epoch and come again.
    #[error("{instance} is stale: epoch {} is known already", known.0)]
    Stale {
        /// Who tried.
        instance: InstanceRef,
        /// The highest epoch known.
        known: Epoch,
    },
    /// A registration under somebody else's lease.
    #[error("the lease of {holder} does not cover {instance}")]
    WrongLease {
        /// Whose lease it is.
        holder: InstanceRef,
        /// Whom it was used for.
        instance: InstanceRef,
    },
    /// The lease is gone; register again under a new epoch.
    #[error("the lease of {0} is lost")]
    LeaseLost(InstanceRef),
    /// The document is at another revision than expected.
    #[error("{key} is at revision {found:?}, expected {expected:?}")]
    Conflict {
        /// Which document.
        key: String,
        /// What the caller expected; none: that it does not exist.
        expected: Option<Revision>,
        /// What is there.
        found: Option<Revision>,
    },
    /// The store cannot be reached now. What is known stays valid; try again.
    #[error("the discovery store is unavailable: {0}")]
    Unavailable(String),
}

/// The registry of instances.
#[async_trait]
pub trait Discovery: Send + Sync + 'static {
    /// An epoch higher than every one issued or registered for `path` before.
    async fn next_epoch(&self, path: ActorPath) -> Result<Epoch, DiscoveryError>;

    /// Publishes `registration` for as long as the lease lives. The lease keeps itself alive; when its holder disappears
    /// without a word the registration goes within `ttl` (a store may round it up). An epoch not higher than the highest
    /// registered one is refused; a higher one replaces the life before, whose lease is lost.
    async fn register(&self, registration: Registration, ttl: Duration) -> Result<Lease, DiscoveryError>;

    /// Follows all registrations.
    async fn watch(&self) -> Result<Watch, DiscoveryError>;
}
