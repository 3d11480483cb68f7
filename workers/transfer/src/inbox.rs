//! The owner's side: opening tickets and taking what arrives.

use std::{any::Any, fmt, sync::Arc};

use bytes::Bytes;
use cluster_fabric::clock::{Clock, Sleep};
use cluster_messages::{InstanceRef, Ticket};
use tokio::sync::{mpsc, oneshot};

use crate::{Proof, TransferError, exchange::Exchange};

/// One owner's tickets. Clones share them.
#[derive(Clone)]
pub struct Tickets {
    exchange: Exchange,
    owner: InstanceRef,
}

impl Tickets {
    pub(crate) fn new(exchange: Exchange, owner: InstanceRef) -> Self {
        Self { exchange, owner }
    }

    /// Opens `ticket`: from now on its pages are taken, of which at most `capacity` wait.
    pub fn open(&self, ticket: Ticket, capacity: usize) -> Result<Inbox, TransferError> {
        if ticket.owner != self.owner {
            return Err(TransferError::NotOwner {
                owner: ticket.owner,
                instance: self.owner,
            });
        }
        self.exchange.open(ticket, capacity)
    }

    /// How many tickets are open.
    pub fn open_len(&self) -> usize {
        self.exchange.open_len(self.owner)
    }

    /// Whose tickets these are.
    pub fn owner(&self) -> InstanceRef {
        self.owner
    }
}

impl fmt::Debug for Tickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tickets({}, {} open)", self.owner, self.open_len())
    }
}

/// A page that arrived.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Arrived {
    /// Its number in the sequence.
    pub page: u32,
    /// Its content.
    pub bytes: Bytes,
}

/// What a carrier puts into an inbox.
pub(crate) enum Delivery {
    Page(Arrived),
    End {
        claimed: Proof,
        verdict: oneshot::Sender<Result<(), TransferError>>,
    },
}

/// An open ticket. Dropping it closes the ticket: every later write is refused.
pub struct Inbox {
    ticket: Ticket,
    deliveries: mpsc::Receiver<Delivery>,
    proof: Proof,
    timer: Sleep,
    /// Closes the ticket when dropped; none: it is closed.
    registration: Option<Box<dyn Any + Send + Sync>>,
    end: Option<Result<(), TransferError>>,
}

impl Inbox {
    pub(crate) fn new(
        ticket: Ticket,
        deliveries: mpsc::Receiver<Delivery>,
        clock: &Arc<dyn Clock>,
        registration: Box<dyn Any + Send + Sync>,
    ) -> Self {
        Self {
            timer: clock.sleep(clock.remaining(ticket.deadline)),
            proof: Proof::default(),
            registration: Some(registration),
            end: None,
            ticket,
            deliveries,
        }
    }

    /// The next page, in the order of arrival. `None` when all pages of the ticket are here, proven by count and digest.
    /// After an error the ticket is closed; the same result comes again.
    pub async fn next(&mut self) -> Result<Option<Arrived>, TransferError> {
        if let Some(end) = &self.end {
            return end.clone().map(|()| None);
        }
        let delivery = tokio::select! {
            biased;
            () = &mut self.timer => return self.close(Err(TransferError::Deadline(self.ticket.id))),
            delivery = self.deliveries.recv() => delivery,
        };
        match delivery {
            Some(Delivery::Page(arrived)) => {
                self.proof.add(arrived.page, &arrived.bytes);
                Ok(Some(arrived))
            }
            Some(Delivery::End { claimed, verdict }) => {
                let found = self.compare(claimed);
                // A sender that gave up waiting does not need the verdict.
                drop(verdict.send(found.clone()));
                self.close(found)
            }
            None => self.close(Err(TransferError::Closed(self.ticket.id))),
        }
    }

    /// What arrived so far. The owner compares it with what the sender reports on the request stream.
    pub fn proof(&self) -> Proof {
        self.proof
    }

    /// The ticket.
    pub fn ticket(&self) -> &Ticket {
        &self.ticket
    }

    fn compare(&self, claimed: Proof) -> Result<(), TransferError> {
        let wanted = self.ticket.end_page - self.ticket.first_page;
        if claimed == self.proof && claimed.pages == wanted {
            return Ok(());
        }
        Err(TransferError::Incomplete {
            wanted,
            claimed,
            arrived: self.proof,
        })
    }

    fn close(&mut self, end: Result<(), TransferError>) -> Result<Option<Arrived>, TransferError> {
        self.deliveries.close();
        self.registration = None;
        self.end = Some(end.clone());
        end.map(|()| None)
    }
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Inbox(ticket {:032x}, {})", self.ticket.id.0, self.proof)
    }
}
