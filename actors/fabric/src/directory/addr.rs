//! An actor's address. Only here is a local actor told from a remote one.

use std::{fmt, marker::PhantomData};

use cluster_messages::{InstanceRef, NodeId};
use tokio::sync::oneshot;

use super::{Directory, remote, stopped};
use crate::{
    clock::before,
    protocol::{Accepts, Call, CallContext, CallError, Protocol, ReplyTo},
    wire::{self, Wire},
};

/// Where to call one life of an actor that speaks `P`.
pub struct Addr<P> {
    directory: Directory,
    instance: InstanceRef,
    node: NodeId,
    protocol: PhantomData<fn() -> P>,
}

impl<P: Protocol> Addr<P> {
    pub(super) fn new(directory: Directory, instance: InstanceRef, node: NodeId) -> Self {
        Self {
            directory,
            instance,
            node,
            protocol: PhantomData,
        }
    }

    /// Whom it reaches.
    pub fn instance(&self) -> InstanceRef {
        self.instance
    }

    /// Whether the actor lives on this node.
    pub fn is_local(&self) -> bool {
        self.node == *self.directory.node()
    }

    /// Asks, and waits for the answer, at most until the deadline.
    pub async fn call<R: Wire>(&self, request: R, context: CallContext) -> Result<P::Reply, CallError>
    where
        P: Accepts<R>,
    {
        if self.directory.0.clock.remaining(context.deadline).is_zero() {
            return Err(CallError::Deadline);
        }
        if self.is_local() {
            return self.call_here(request, context).await;
        }
        let left = self.directory.0.clock.remaining(context.deadline);
        let message =
            remote::call_message::<P>(self.instance.epoch, P::METHOD, wire::encode(&request)?, left, &context);
        let subject = self.directory.call_subject(&self.node, self.instance.path);
        let answer = self.directory.0.messaging.request(&subject, message, left).await?;
        let body = remote::read_answer(&answer)?;
        Ok(wire::decode(body)?)
    }

    /// Tells, and does not wait. From another node, `Ok` means no more than that it was sent.
    pub async fn cast<R: Wire>(&self, request: R, context: CallContext) -> Result<(), CallError>
    where
        P: Accepts<R>,
    {
        if self.is_local() {
            return self.put(request, context, ReplyTo::nowhere());
        }
        let left = self.directory.0.clock.remaining(context.deadline);
        let message =
            remote::call_message::<P>(self.instance.epoch, P::METHOD, wire::encode(&request)?, left, &context);
        let subject = self.directory.call_subject(&self.node, self.instance.path);
        Ok(self.directory.0.messaging.publish(&subject, message).await?)
    }

    async fn call_here<R: Wire>(&self, request: R, context: CallContext) -> Result<P::Reply, CallError>
    where
        P: Accepts<R>,
    {
        let deadline = context.deadline;
        let (reply, answer) = oneshot::channel();
        self.put(request, context, ReplyTo::here(reply))?;
        let answered = before(&*self.directory.0.clock, deadline, answer).await;
        answered
            .map_err(|_| CallError::Deadline)?
            .unwrap_or(Err(CallError::Dropped))
    }

    fn put<R: Wire>(&self, request: R, context: CallContext, reply: ReplyTo<P::Reply>) -> Result<(), CallError>
    where
        P: Accepts<R>,
    {
        let mailbox = self.directory.mailbox::<P>(self.instance)?;
        let call = Call {
            request,
            context,
            reply,
        };
        mailbox.cast(P::wrap(call)).map_err(|_| stopped(self.instance))
    }
}

impl<P> Clone for Addr<P> {
    fn clone(&self) -> Self {
        Self {
            directory: self.directory.clone(),
            instance: self.instance,
            node: self.node.clone(),
            protocol: PhantomData,
        }
    }
}

impl<P> fmt::Debug for Addr<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Addr({} on {})", self.instance, self.node)
    }
}
