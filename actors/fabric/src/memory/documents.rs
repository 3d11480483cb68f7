//! The store of documents, in memory.

use std::{
    collections::BTreeMap,
    future::ready,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use tokio::sync::broadcast;

use super::follow::{BACKLOG, Followed, follow};
use crate::discovery::{DiscoveryError, Document, DocumentChange, DocumentWatch, Documents, Revision};

pub(super) struct MemoryDocuments {
    state: Mutex<State>,
    /// Sent to while `state` is locked, so that the order of changes is the order of revisions.
    changes: broadcast::Sender<DocumentChange>,
}

#[derive(Default)]
struct State {
    revision: u64,
    documents: BTreeMap<String, Document>,
}

impl Default for MemoryDocuments {
    fn default() -> Self {
        Self {
            state: Mutex::default(),
            changes: broadcast::Sender::new(BACKLOG),
        }
    }
}

impl MemoryDocuments {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, state: &mut State, key: &str, value: Bytes) -> Revision {
        state.revision += 1;
        let document = Document {
            key: key.into(),
            value,
            revision: Revision(state.revision),
        };
        state.documents.insert(key.into(), document.clone());
        // Without a follower the change is in the next snapshot.
        drop(self.changes.send(DocumentChange::Put(document)));
        Revision(state.revision)
    }
}

fn expect_revision(state: &State, key: &str, expected: Option<Revision>) -> Result<(), DiscoveryError> {
    let found = state.documents.get(key).map(|document| document.revision);
    if found == expected {
        return Ok(());
    }
    Err(DiscoveryError::Conflict {
        key: key.into(),
        expected,
        found,
    })
}

impl Followed for MemoryDocuments {
    type Change = DocumentChange;

    fn begin(&self) -> (DocumentChange, broadcast::Receiver<DocumentChange>) {
        let state = self.lock();
        let documents = state.documents.values().cloned().collect();
        (DocumentChange::Resync(documents), self.changes.subscribe())
    }
}

/// What the traits need: a handle that can keep the store alive.
#[async_trait]
impl Documents for Arc<MemoryDocuments> {
    async fn get(&self, key: &str) -> Result<Option<Document>, DiscoveryError> {
        Ok(self.lock().documents.get(key).cloned())
    }

    async fn list(&self, prefix: &str) -> Result<Vec<Document>, DiscoveryError> {
        let state = self.lock();
        let from_prefix = state.documents.range(prefix.to_owned()..);
        let within = from_prefix.take_while(|(key, _)| key.starts_with(prefix));
        Ok(within.map(|(_, document)| document.clone()).collect())
    }

    async fn put(&self, key: &str, value: Bytes) -> Result<Revision, DiscoveryError> {
        Ok(self.write(&mut self.lock(), key, value))
    }

    async fn compare_and_swap(
        &self,
        key: &str,
        expected: Option<Revision>,
        value: Bytes,
    ) -> Result<Revision, DiscoveryError> {
        let mut state = self.lock();
        expect_revision(&state, key, expected)?;
        Ok(self.write(&mut state, key, value))
    }

    async fn delete(&self, key: &str, expected: Revision) -> Result<(), DiscoveryError> {
        let mut state = self.lock();
        expect_revision(&state, key, Some(expected))?;
        state.revision += 1;
        state.documents.remove(key);
        drop(self.changes.send(DocumentChange::Deleted(key.into())));
        Ok(())
    }

    async fn watch_prefix(&self, prefix: &str) -> Result<DocumentWatch, DiscoveryError> {
        let prefix = prefix.to_owned();
        let changes = follow(self.clone()).filter_map(move |change| ready(within(&prefix, change)));
        Ok(DocumentWatch::new(changes))
    }
}

/// `change` as a follower of `prefix` sees it.
fn within(prefix: &str, change: DocumentChange) -> Option<DocumentChange> {
    match change {
        DocumentChange::Resync(mut documents) => {
            documents.retain(|document| document.key.starts_with(prefix));
            Some(DocumentChange::Resync(documents))
        }
        DocumentChange::Put(document) if !document.key.starts_with(prefix) => None,
        DocumentChange::Deleted(key) if !key.starts_with(prefix) => None,
        change => Some(change),
    }
}
