//! The instance's side of opening a stream: requests arrive, each is accepted or refused exactly once.

use std::{fmt, marker::PhantomData, sync::Arc};

use cluster_messages::{Deadline, ErrorKind, Header, RequestError};

use super::{
    StreamProtocol,
    carrier::{Decision, Offer, RawIncoming},
    internal,
    sink::Sink,
};
use crate::{clock::Clock, wire::Wire};

/// The requests of protocol `P` for one instance. Dropping it ends the service; requests that still wait are lost.
pub struct Incoming<P> {
    raw: RawIncoming,
    clock: Arc<dyn Clock>,
    protocol: PhantomData<fn() -> P>,
}

/// A request that waits for a decision.
pub struct Request<P: StreamProtocol> {
    /// Request, deadline, trace.
    pub header: Header,
    /// What is asked.
    pub open: P::Open,
    /// How to answer.
    pub respond: Responder<P::Frame>,
}

/// Decides about one request. Dropped undecided (a panic) it tells the asker that the request was lost.
pub struct Responder<F> {
    decision: Decision,
    deadline: Deadline,
    clock: Arc<dyn Clock>,
    frame: PhantomData<fn(F)>,
}

impl<P: StreamProtocol> Incoming<P> {
    pub(super) fn new(raw: RawIncoming, clock: Arc<dyn Clock>) -> Self {
        Self {
            raw,
            clock,
            protocol: PhantomData,
        }
    }

    /// The next request. Those whose asker gave up or whose deadline passed while they waited are not shown. `None` when
    /// the service has ended: closed, or replaced by a later life of the actor.
    pub async fn next(&mut self) -> Option<Request<P>> {
        loop {
            let offer = self.raw.offers.recv().await?;
            if let Some(request) = self.look_at(offer) {
                return Some(request);
            }
        }
    }

    /// Refuses further requests; those that wait already are still delivered.
    pub fn close(&mut self) {
        self.raw.offers.close();
    }

    /// How many requests wait.
    pub fn queue_len(&self) -> usize {
        self.raw.offers.len()
    }

    fn look_at(&self, offer: Offer) -> Option<Request<P>> {
        let Offer { header, open, decision } = offer;
        if decision.is_abandoned() {
            return None;
        }
        if self.clock.remaining(header.deadline).is_zero() {
            let late = RequestError::new(
                ErrorKind::Deadline,
                "the deadline passed before the request was looked at",
            );
            decision.refuse(late);
            return None;
        }
        match open.unpack() {
            Ok(open) => Some(Request {
                respond: Responder::new(decision, header.deadline, self.clock.clone()),
                header,
                open,
            }),
            Err(error) => {
                decision.refuse(internal(&error));
                None
            }
        }
    }
}

impl<F: Wire> Responder<F> {
    fn new(decision: Decision, deadline: Deadline, clock: Arc<dyn Clock>) -> Self {
        Self {
            decision,
            deadline,
            clock,
            frame: PhantomData,
        }
    }

    /// Accepts. At most `capacity` frames wait for the reader.
    pub fn accept(self, capacity: usize) -> Sink<F> {
        Sink::new(self.decision.accept(capacity), self.deadline, self.clock)
    }

    /// Refuses.
    pub fn refuse(self, error: RequestError) {
        self.decision.refuse(error);
    }

    /// Completes when the asker gave up waiting for the decision.
    pub async fn abandoned(&mut self) {
        self.decision.abandoned().await;
    }

    /// Whether the asker gave up.
    pub fn is_abandoned(&self) -> bool {
        self.decision.is_abandoned()
    }
}

impl<P> fmt::Debug for Incoming<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Incoming({} waiting)", self.raw.offers.len())
    }
}

impl<F> fmt::Debug for Responder<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Responder")
    }
}
