//! The cache role: pages that left an engine's pool, in main memory, for whoever asks for the same tokens again. Wrong or
//! missing pages cost time and never correctness: a page is found only under the hash of all that went into it.

use async_trait::async_trait;
use bytes::Bytes;
use cluster_fabric::{Registered as Reachable, protocol};
use cluster_messages::{ActorPath, Fetch, Store, StoreReport};
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef};

use crate::{
    host::Registered,
    page_store::PageStore,
    supervisor::{Life, RoleSpec, spawn_linked},
};

protocol! {
    /// What a cache is asked.
    pub(crate) enum CacheMessage = "cache" {
        /// Keep these pages.
        Store(Store) -> StoreReport,
        /// Hand out the longest run of these.
        Fetch(Fetch) -> Vec<Bytes>,
    }
}

/// How to start a cache.
pub struct CacheSpec {
    /// Its name.
    pub path: ActorPath,
    /// Main memory for pages.
    pub bytes_max: usize,
}

#[async_trait]
impl RoleSpec for CacheSpec {
    fn path(&self) -> ActorPath {
        self.path
    }

    async fn spawn(&self, life: Life) -> Result<ActorCell, String> {
        let supervisor = life.supervisor.clone();
        spawn_linked(CacheActor { life }, self.bytes_max, supervisor).await
    }
}

struct CacheActor {
    life: Life,
}

struct CacheState {
    pages: PageStore,
    _reachable: Reachable,
    _registered: Registered,
}

impl Actor for CacheActor {
    type Msg = CacheMessage;
    type State = CacheState;
    type Arguments = usize;

    async fn pre_start(
        &self,
        myself: ActorRef<CacheMessage>,
        bytes_max: usize,
    ) -> Result<CacheState, ActorProcessingErr> {
        let Life { host, instance, .. } = &self.life;
        let _reachable = host.fabric.directory.register(*instance, myself)?;
        let _registered = host.register(host.registration(*instance)).await?;
        Ok(CacheState {
            pages: PageStore::new(bytes_max),
            _reachable,
            _registered,
        })
    }

    async fn handle(
        &self,
        _: ActorRef<CacheMessage>,
        message: CacheMessage,
        state: &mut CacheState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            CacheMessage::Store(call) => {
                let report = state.pages.store(call.request.layout, call.request.pages);
                call.reply.send(report);
            }
            CacheMessage::Fetch(call) => {
                let pages = state.pages.fetch(call.request.layout, &call.request.hashes);
                call.reply.send(pages);
            }
        }
        Ok(())
    }
}
