//! Who else is there, and how to ask them: one view per node, kept up to date from discovery, with the calls to routers and
//! caches. When discovery is lost the last view stays.

use std::{
    collections::BTreeMap,
    fmt::Display,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use cluster_fabric::{
    Addr, Change, Fabric,
    clock::before,
    protocol::{Accepts, CallContext, CallError, Protocol},
    wire::Wire,
};
use cluster_messages::{
    Deadline, ErrorKind, Fetch, Header, InstanceRef, Registration, RequestError, Role, Route, RouteDecision, Store,
};
use tokio::{sync::watch, task::AbortHandle};

use crate::{
    cache::CacheMessage,
    router::{Choose, ChooseEncoders, Part, Release, RouterMessage},
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
        self.next_but(role, &[])
    }

    /// One of a role, in turn, but none of these.
    pub(crate) fn next_but(&self, role: Role, others: &[InstanceRef]) -> Option<InstanceRef> {
        let mut all = self.of_role(role);
        all.retain(|instance| !others.contains(instance));
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        all.get(turn % all.len().max(1)).copied()
    }

    /// Waits until `instance` is no longer registered, at most `within`; whether it is gone.
    pub(crate) async fn is_gone(&self, instance: InstanceRef, within: Duration) -> bool {
        let clock = &self.fabric.clock;
        let gone = self.wait_for(|view| !view.contains_key(&instance));
        before(&**clock, clock.deadline_in(within), gone).await.is_ok()
    }

    /// Asks a router who serves a request.
    pub(crate) async fn route(&self, route: Route) -> Result<(RouteDecision, Routed), RequestError> {
        let header = route.header.clone();
        let choose = |ticket| Choose {
            route: route.clone(),
            ticket,
        };
        self.ask_router(&header, choose).await
    }

    /// Asks a router who encodes the media of a request; nobody when no encoder can.
    pub(crate) async fn route_encoders(&self, route: Route) -> Result<(Vec<InstanceRef>, Routed), RequestError> {
        let header = route.header.clone();
        let choose = |ticket| ChooseEncoders {
            route: route.clone(),
            ticket,
        };
        self.ask_router(&header, choose).await
    }

    /// A router that is just being restarted is waited for: asking twice does no harm.
    async fn ask_router<Q: Wire>(
        &self,
        header: &Header,
        question: impl Fn(u64) -> Q,
    ) -> Result<(<RouterMessage as Accepts<Q>>::Reply, Routed), RequestError>
    where
        RouterMessage: Accepts<Q>,
    {
        let clock = &self.fabric.clock;
        let patience = clock.deadline_in(ROUTER_PATIENCE).min(header.deadline);
        loop {
            let error = match self.addr::<RouterMessage>(Role::Router) {
                None => no_router("no router is registered"),
                Some(router) => match self.choose(router, &question, header, patience).await {
                    Ok(routing) => return Ok(routing),
                    Err(CallError::App(refusal)) => return Err(refusal),
                    // The request itself may still have time; it is the router that does not answer.
                    Err(error @ CallError::Deadline) if patience < header.deadline => no_router(error),
                    Err(error) => error.into(),
                },
            };
            if clock.remaining(patience).is_zero() {
                return Err(error);
            }
            clock.sleep(LOOK_AGAIN).await;
        }
    }

    async fn choose<Q: Wire>(
        &self,
        router: Addr<RouterMessage>,
        question: impl Fn(u64) -> Q,
        header: &Header,
        deadline: Deadline,
    ) -> Result<(<RouterMessage as Accepts<Q>>::Reply, Routed), CallError>
    where
        RouterMessage: Accepts<Q>,
    {
        let routed = Routed {
            ticket: self.fabric.entropy.next_u64(),
            router: router.clone(),
            fabric: self.fabric.clone(),
            is_counted: true,
        };
        let context = CallContext {
            deadline,
            trace: header.trace.clone(),
        };
        // Whoever gives up during the call drops `routed`: what the router has counted by then is given back.
        match router.call(question(routed.ticket), context).await {
            Ok(decision) => Ok((decision, routed)),
            Err(error) => {
                routed.unless_refused(&error);
                Err(error)
            }
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

fn no_router(reason: impl Display) -> RequestError {
    RequestError::new(ErrorKind::Unavailable, reason.to_string()).retry_after(1000)
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
            let InstanceRef { path, epoch } = registration.instance;
            // Word of an earlier life can arrive after that of a later one.
            if view.keys().any(|known| known.path == path && known.epoch > epoch) {
                return;
            }
            view.retain(|instance, _| instance.path != path);
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
    /// Whether the router may know the ticket.
    is_counted: bool,
}

impl Routed {
    /// The prompt is computed: its prefill instance is free of this request.
    pub(crate) fn prefill_is_done(&self) {
        self.release(Part::Prefill);
    }

    /// The media are encoded: the encoders are free of this request.
    pub(crate) fn encoders_are_done(&self) {
        self.release(Part::Encoders);
    }

    /// The workers will be chosen again.
    pub(crate) fn workers_are_not_wanted(&self) {
        self.release(Part::Workers);
    }

    /// A router that refused counts nothing.
    fn unless_refused(mut self, error: &CallError) {
        self.is_counted = !matches!(error, CallError::App(_));
    }

    fn release(&self, part: Part) {
        let (router, ticket) = (self.router.clone(), self.ticket);
        let context = CallContext::until(self.fabric.clock.deadline_in(STORE_MAX));
        // Without a runtime the process is ending, and the router with it.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        runtime.spawn(async move {
            // A router that is gone has forgotten its load; one that is not reached forgets it at the request's deadline.
            drop(router.cast(Release { ticket, part }, context).await);
        });
    }
}

impl Drop for Routed {
    fn drop(&mut self) {
        if self.is_counted {
            self.release(Part::All);
        }
    }
}

#[cfg(test)]
mod tests;
