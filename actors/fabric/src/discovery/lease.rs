//! A registration's lease. Leases serve discovery, never ownership: whoever holds one may have lost it without knowing,
//! so what is owned is fenced by epochs.

use std::{fmt, future::Future, sync::Arc};

use async_trait::async_trait;
use cluster_messages::{InstanceRef, Registration};

use super::DiscoveryError;

/// What a store does for a lease.
#[async_trait]
pub trait LeaseKeeper: Send + Sync + 'static {
    /// Replaces the registration.
    async fn update(&self, registration: Registration) -> Result<(), DiscoveryError>;

    /// Ends the lease now. Ending it twice is not an error.
    async fn revoke(&self);

    /// Completes when the lease is gone, for whatever reason.
    async fn lost(&self);

    /// Ends the lease soon, without waiting: its handle was dropped.
    fn abandon(&self);
}

/// Keeps a registration published. It renews itself; dropping it ends it as well as can be done without waiting.
pub struct Lease {
    instance: InstanceRef,
    keeper: Arc<dyn LeaseKeeper>,
}

impl Lease {
    /// The lease of `instance` in `keeper`'s store.
    pub fn new(instance: InstanceRef, keeper: Arc<dyn LeaseKeeper>) -> Self {
        Self { instance, keeper }
    }

    /// Whose registration it is.
    pub fn instance(&self) -> InstanceRef {
        self.instance
    }

    /// Publishes a changed registration of the same instance and epoch.
    pub async fn update(&self, registration: Registration) -> Result<(), DiscoveryError> {
        if registration.instance != self.instance {
            return Err(DiscoveryError::WrongLease {
                holder: self.instance,
                instance: registration.instance,
            });
        }
        self.keeper.update(registration).await
    }

    /// Takes the registration back; watchers hear it at once.
    pub async fn revoke(self) {
        self.keeper.revoke().await;
    }

    /// Completes when the lease is lost: it ran out, or a later life replaced this one. The instance goes on serving and
    /// registers again under a new epoch. It does not borrow the lease.
    pub fn lost(&self) -> impl Future<Output = ()> + Send + 'static {
        let keeper = self.keeper.clone();
        async move { keeper.lost().await }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.keeper.abandon();
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lease({})", self.instance)
    }
}
