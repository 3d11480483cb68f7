//! Worker ↔ cache: pages that left a device, kept for later.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{BlockHash, Fingerprint};

/// A page under the hash of the tokens it was computed from.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CachedPage {
    /// Of the whole chain up to and including this page.
    pub hash: BlockHash,
    /// As the worker's model laid it out.
    pub bytes: Bytes,
}

/// Offers pages. The cache keeps what it has room for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Store {
    /// Pages of another layout are useless to each other.
    pub layout: Fingerprint,
    /// What is offered.
    pub pages: Vec<CachedPage>,
}

/// What became of an offer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct StoreReport {
    /// Pages kept, those it already had included.
    pub kept: u32,
    /// Older pages that had to go.
    pub evicted: u32,
}

/// Asks for a run of pages. The answer is the longest prefix of `hashes` that the cache holds whole.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Fetch {
    /// The asker's layout.
    pub layout: Fingerprint,
    /// Wanted, in order.
    pub hashes: Vec<BlockHash>,
}
