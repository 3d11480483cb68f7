//! Versioned documents: topologies, plans, the leader's record. Writers compare before they swap.

use std::fmt;

use async_trait::async_trait;
use bytes::Bytes;
use futures::{
    StreamExt,
    stream::{BoxStream, Stream},
};

use super::DiscoveryError;

/// The state of the store in which a document was last written. Grows with every write.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Revision(pub u64);

/// One document.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Document {
    /// Its key, parts separated by `/`.
    pub key: String,
    /// Its content.
    pub value: Bytes,
    /// When it was last written.
    pub revision: Revision,
}

/// A change of documents.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DocumentChange {
    /// Exactly these are there: the start, or after changes were missed. Ordered by key.
    Resync(Vec<Document>),
    /// This one was written.
    Put(Document),
    /// This one was deleted.
    Deleted(String),
}

/// The store of documents.
#[async_trait]
pub trait Documents: Send + Sync + 'static {
    /// The document under `key`.
    async fn get(&self, key: &str) -> Result<Option<Document>, DiscoveryError>;

    /// The documents whose keys begin with `prefix`, ordered by key.
    async fn list(&self, prefix: &str) -> Result<Vec<Document>, DiscoveryError>;

    /// Writes whatever is there.
    async fn put(&self, key: &str, value: Bytes) -> Result<Revision, DiscoveryError>;

    /// Writes if the document is at revision `expected`, or does not exist where none is expected.
    async fn compare_and_swap(
        &self,
        key: &str,
        expected: Option<Revision>,
        value: Bytes,
    ) -> Result<Revision, DiscoveryError>;

    /// Deletes the document if it is at revision `expected`.
    async fn delete(&self, key: &str, expected: Revision) -> Result<(), DiscoveryError>;

    /// Follows the documents whose keys begin with `prefix`.
    async fn watch_prefix(&self, prefix: &str) -> Result<DocumentWatch, DiscoveryError>;
}

/// The changes in order, beginning with a `Resync`. A reader that falls behind gets a `Resync` in place of what it missed.
pub struct DocumentWatch(BoxStream<'static, DocumentChange>);

impl DocumentWatch {
    /// A watch that delivers `changes`, the first of which is a `Resync`.
    pub fn new(changes: impl Stream<Item = DocumentChange> + Send + 'static) -> Self {
        Self(changes.boxed())
    }

    /// The next change. `None` when the store is gone for good.
    pub async fn next(&mut self) -> Option<DocumentChange> {
        self.0.next().await
    }
}

impl fmt::Debug for DocumentWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DocumentWatch")
    }
}
