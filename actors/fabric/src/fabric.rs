//! Everything one node hands to its actors, in one cheap handle.

use std::{fmt, sync::Arc};

use cluster_messages::NodeId;

use crate::{Clock, Directory, Discovery, Documents, Entropy, Messaging, Streams};

/// A node's view of the cluster. Clones share it.
#[derive(Clone)]
pub struct Fabric {
    /// Which node this is.
    pub node: NodeId,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Ids and jitter.
    pub entropy: Entropy,
    /// Who is there.
    pub discovery: Arc<dyn Discovery>,
    /// Topologies and plans.
    pub documents: Arc<dyn Documents>,
    /// Subjects and requests.
    pub messaging: Arc<dyn Messaging>,
    /// Request streams.
    pub streams: Streams,
    /// The actors of this node, and addresses of all others.
    pub directory: Directory,
}

impl fmt::Debug for Fabric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fabric({})", self.node)
    }
}
