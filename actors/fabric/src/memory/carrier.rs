//! The carrier of request streams inside one process.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use cluster_messages::{ActorPath, ErrorKind, Header, InstanceRef, NodeId, RequestError};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::links::Links;
use crate::streams::{Decision, Doors, Form, Offer, Parcel, RawIncoming, RawStream, ServeError, StreamCarrier};

/// All doors of the world, and which node each actor lives on.
#[derive(Default)]
pub(super) struct Switchboard {
    doors: Arc<Doors>,
    homes: Mutex<HashMap<ActorPath, NodeId>>,
}

impl Switchboard {
    fn home(&self, path: ActorPath) -> Option<NodeId> {
        let homes = self.homes.lock().unwrap_or_else(PoisonError::into_inner);
        homes.get(&path).cloned()
    }

    fn move_in(&self, path: ActorPath, node: &NodeId) {
        let mut homes = self.homes.lock().unwrap_or_else(PoisonError::into_inner);
        homes.insert(path, node.clone());
    }
}

/// One node's share of it.
pub(super) struct NodeCarrier {
    pub(super) node: NodeId,
    pub(super) form: Form,
    pub(super) links: Arc<Links>,
    pub(super) switchboard: Arc<Switchboard>,
}

impl NodeCarrier {
    /// The link to where `to` lives; none: on this node.
    fn link(&self, to: InstanceRef) -> Result<Option<CancellationToken>, RequestError> {
        let Some(home) = self.switchboard.home(to.path).filter(|home| *home != self.node) else {
            return Ok(None);
        };
        let link = self.links.link(&self.node, &home);
        if link.is_cancelled() {
            return Err(RequestError::new(
                ErrorKind::Unavailable,
                format!("{home}, where {to} lives, cannot be reached"),
            ));
        }
        Ok(Some(link))
    }
}

#[async_trait]
impl StreamCarrier for NodeCarrier {
    fn serve(&self, instance: InstanceRef, protocol: &'static str, queue: usize) -> Result<RawIncoming, ServeError> {
        let incoming = self.switchboard.doors.serve(instance, protocol, queue)?;
        self.switchboard.move_in(instance.path, &self.node);
        Ok(incoming)
    }

    fn form(&self, _to: InstanceRef) -> Form {
        self.form
    }

    async fn open(
        &self,
        to: InstanceRef,
        protocol: &'static str,
        header: Header,
        open: Parcel,
    ) -> Result<RawStream, RequestError> {
        let link = self.link(to)?;
        let (answer, decided) = oneshot::channel();
        let decision = Decision {
            form: self.form,
            link: link.clone(),
            answer,
        };
        self.switchboard
            .doors
            .offer(to, protocol, Offer { header, open, decision })?;
        let lost = || RequestError::new(ErrorKind::Lost, format!("{to} went away before it answered"));
        let Some(link) = link else {
            return decided.await.unwrap_or_else(|_| Err(lost()));
        };
        tokio::select! {
            decision = decided => decision.unwrap_or_else(|_| Err(lost())),
            () = link.cancelled() => Err(lost()),
        }
    }
}
