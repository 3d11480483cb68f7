//! Who else is there, and how to ask them: one view per node, kept up to date from discovery, with the calls to routers and
//! caches. When discovery is lost the last view stays.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use cluster_fabric::{
    Addr, Change, Fabric,
    protocol::{CallContext, CallError, Protocol},
};
use cluster_messages::{ErrorKind, Fetch, InstanceRef, Registration, RequestError, Role, Route, RouteDecision, Store};
use tokio::{sync::watch, task::AbortHandle};

use crate::{
    cache::CacheMessage,
    router::{Release, RouterMessage},
};

/// How long a request waits for a router that is being restarted.
const ROUTER_PATIENCE: Duration = Duration::from_secs(5);
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// An offer to a cache is worth this much waiting.
const STORE_MAX: Duration = Duration::from_secs(2);

type View = BTreeMap<InstanceRef, Registration>;

/// The present view of one node. Clones share it.
#[derive(Clone)]
pub struct Peers {
    fabric: Fabric,
    view: watch::Receiver<Arc<View>>,
    turn: Arc<AtomicUsize>,
    _watching: Arc<Watching>,
}

struct Watching(AbortHandle);

impl Drop for Watching {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Peers {
    /// Starts to follow registrations.
    pub async fn watch(fabric: &Fabric) -> Result<Self, String> {
        let mut changes = fabric.discovery.watch().await.map_err(|error| error.to_string())?;
        let (publish, view) = watch::channel(Arc::new(View::new()));
        let follow = async move {
            while let Some(change) = changes.next().await {
                publish.send_modify(|view| apply(Arc::make_mut(view), change));
            }
            tracing::warn!("discovery is gone for good; the last view of the cluster stays");
            publish.closed().await;
        };
        let watching = Arc::new(Watching(tokio::spawn(follow).abort_handle()));
        Ok(Self {
            fabric: fabric.clone(),
            view,
            turn: Arc::default(),
            _watching: watching,
        })
    }

    /// Everyone of a role, in order.
    pub fn of_role(&self, role: Role) -> Vec<InstanceRef> {
        self.view
            .borrow()
            .keys()
            .copied()
            .filter(|instance| instance.path.role == role)
            .collect()
    }

    /// Waits until the view meets `condition`.
    pub async fn wait_for(&self, mut condition: impl FnMut(&BTreeMap<InstanceRef, Registration>) -> bool) {
        let mut view = self.view.clone();
        // The task that publishes lives as long as `self`.
        drop(view.wait_for(|view| condition(view)).await);
    }

    /// One of a role, in turn.
    pub(crate) fn next_of(&self, role: Role) -> Option<InstanceRef> {
        let all = self.of_role(role);
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        all.get(turn % all.len().max(1)).copied()
    }

    /// Asks a router. One that is just being restarted is waited for: asking twice does no harm.
    pub(crate) async fn route(&self, query: Route) -> Result<(RouteDecision, Routed), RequestError> {
        let clock = &self.fabric.clock;
        let patience = clock.deadline_in(ROUTER_PATIENCE).min(query.header.deadline);
        loop {
            let context = CallContext::from(&query.header);
            let error = match self.addr::<RouterMessage>(Role::Router) {
                None => RequestError::new(ErrorKind::Unavailable, "no router is registered").retry_after(1000),
                Some(router) => match router.call(query.clone(), context).await {
                    Ok(routing) => {
                        let routed = Routed {
                            router,
                            ticket: routing.ticket,
                            fabric: self.fabric.clone(),
                        };
                        return Ok((routing.decision, routed));
                    }
                    Err(CallError::App(refusal)) => return Err(refusal),
                    Err(error) => error.into(),
                },
            };
            if clock.remaining(patience).is_zero() {
                return Err(error);
            }
            clock.sleep(LOOK_AGAIN).await;
        }
    }

    /// Asks a cache for pages; none when there is no cache or no answer.
    pub(crate) async fn fetch(&self, fetch: Fetch, within: Duration) -> Vec<Bytes> {
        let Some(cache) = self.addr::<CacheMessage>(Role::Cache) else {
            return Vec::new();
        };
        let context = CallContext::until(self.fabric.clock.deadline_in(within));
        match cache.call(fetch, context).await {
            Ok(pages) => pages,
            Err(error) => {
                tracing::debug!(%error, "the cache gave no answer; the pages are computed");
                Vec::new()
            }
        }
    }

    /// Offers pages to a cache; what it does not take is computed again when it is needed.
    pub(crate) async fn store(&self, store: Store) {
        let Some(cache) = self.addr::<CacheMessage>(Role::Cache) else {
            return;
        };
        let context = CallContext::until(self.fabric.clock.deadline_in(STORE_MAX));
        // Called, not cast: the answer is the back-pressure that keeps the cache's mailbox short.
        if let Err(error) = cache.call(store, context).await {
            tracing::debug!(%error, "the cache did not take pages");
        }
    }

    fn addr<P: Protocol>(&self, role: Role) -> Option<Addr<P>> {
        let instance = self.next_of(role)?;
        let node = self.view.borrow().get(&instance)?.node.clone();
        Some(self.fabric.directory.addr(instance, &node))
    }
}

fn apply(view: &mut View, change: Change) {
    match change {
        Change::Resync(all) => {
            *view = all
                .into_iter()
                .map(|registration| (registration.instance, registration))
                .collect()
        }
        Change::Put(registration) => {
            view.retain(|instance, _| instance.path != registration.instance.path);
            view.insert(registration.instance, registration);
        }
        Change::Gone(instance) => {
            view.remove(&instance);
        }
    }
}

/// A routing in force: the router counts it as load until this is dropped.
pub(crate) struct Routed {
    router: Addr<RouterMessage>,
    ticket: u64,
    fabric: Fabric,
}

impl Drop for Routed {
    fn drop(&mut self) {
        let (router, release) = (self.router.clone(), Release { ticket: self.ticket });
        let context = CallContext::until(self.fabric.clock.deadline_in(STORE_MAX));
        // Without a runtime the process is ending, and the router with it.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        runtime.spawn(async move {
            // A router that is gone has forgotten its load; one that is not reached forgets it at the request's deadline.
            drop(router.cast(release, context).await);
        });
    }
}
