//! Request streams: one typed stream per request, from the instance that works to the peer that asked.
//!
//! ```text
//! asker                                   instance
//! Streams::open ── header, P::Open ──►  Incoming::next → Request
//!      ◄────────── refused: RequestError ─ Responder::refuse
//!      ◄────────── accepted ────────────── Responder::accept → Sink
//! Stream::next ◄── P::Frame 0, 1, 2, … ── Sink::send
//! Stream::next ◄── end, or one error ──── Sink::finish (a dropped sink: `Lost`)
//! Stream::stop ──► (or dropped) ────────► Sink::stopped
//! ```
//! Nothing here knows how the bytes travel: that is a [`StreamCarrier`]. The typed face numbers the frames and checks
//! them, so that each carrier gets the same promise: the frames sent, in order, without a gap, then exactly one end.

mod carrier;
mod doors;
mod incoming;
mod pipe;
mod sink;
mod stream;

use std::{fmt, sync::Arc};

use cluster_messages::{ErrorKind, Header, InstanceRef, RequestError};

pub use carrier::{
    Decision, End, Form, Item, Offer, Packet, Parcel, RawIncoming, RawStream, ServeError, StopSignal, StreamCarrier,
};
pub use doors::Doors;
pub use incoming::{Incoming, Request, Responder};
pub use sink::{Closed, Sink, Stopped, TrySendError};
pub use stream::Stream;

use crate::{
    clock::{self, Clock},
    wire::Wire,
};

/// One arrow of the request path: what opens a stream and what comes back on it.
pub trait StreamProtocol: 'static {
    /// Its name in addresses, logs and metrics.
    const NAME: &'static str;
    /// What the asker sends.
    type Open: Wire;
    /// What the instance answers, any number of times.
    type Frame: Wire;
}

/// A node's door to all request streams. Cheap to clone.
#[derive(Clone)]
pub struct Streams {
    carrier: Arc<dyn StreamCarrier>,
    clock: Arc<dyn Clock>,
}

impl Streams {
    /// Typed streams over `carrier`; deadlines are read on `clock`.
    pub fn new(carrier: Arc<dyn StreamCarrier>, clock: Arc<dyn Clock>) -> Self {
        Self { carrier, clock }
    }

    /// Takes the requests of protocol `P` for `instance`. At most `queue` of them wait to be looked at; further ones are
    /// refused as overloaded. Dropping the result ends the service. A new life of an actor replaces the one before.
    pub fn serve<P: StreamProtocol>(&self, instance: InstanceRef, queue: usize) -> Result<Incoming<P>, ServeError> {
        let raw = self.carrier.serve(instance, P::NAME, queue)?;
        Ok(Incoming::new(raw, self.clock.clone()))
    }

    /// Asks instance `to`, and returns when it has accepted or refused. Dropping the future takes the request back.
    pub async fn open<P: StreamProtocol>(
        &self,
        to: InstanceRef,
        header: Header,
        open: P::Open,
    ) -> Result<Stream<P::Frame>, RequestError> {
        let deadline = header.deadline;
        if self.clock.remaining(deadline).is_zero() {
            return Err(deadline_passed(to));
        }
        let parcel = self.carrier.form(to).pack(open);
        let opening = self.carrier.open(to, P::NAME, header, parcel);
        let raw = clock::before(&*self.clock, deadline, opening)
            .await
            .map_err(|_| deadline_passed(to))??;
        Ok(Stream::new(raw, to, deadline, self.clock.clone()))
    }
}

impl fmt::Debug for Streams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Streams")
    }
}

fn deadline_passed(to: InstanceRef) -> RequestError {
    RequestError::new(
        ErrorKind::Deadline,
        format!("the deadline passed while waiting for {to}"),
    )
}

fn internal(error: &dyn fmt::Display) -> RequestError {
    RequestError::new(ErrorKind::Internal, error.to_string())
}

#[cfg(test)]
mod tests;
