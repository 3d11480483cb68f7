//! The sender's side: a handle, and a pusher per ticket that computes the proof on the way.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use cluster_messages::{Fingerprint, Ticket};

use crate::{Proof, TransferError};

/// What moves pages to the owner of a ticket.
#[async_trait]
pub trait PageCarrier: Send + Sync + 'static {
    /// Moves one page. Waits while the owner is behind, at most until the ticket's deadline. A future that is dropped has
    /// moved either the whole page or nothing.
    async fn push(&self, ticket: &Ticket, page: u32, bytes: Bytes) -> Result<(), TransferError>;

    /// Says that all pages are moved, and returns the owner's verdict on `claimed`. No page is taken afterwards.
    async fn finish(&self, ticket: &Ticket, claimed: Proof) -> Result<(), TransferError>;
}

/// Sends pages to any ticket. Cheap to clone.
#[derive(Clone)]
pub struct Transfer(Arc<dyn PageCarrier>);

impl Transfer {
    /// Sends by `carrier`.
    pub fn new(carrier: Arc<dyn PageCarrier>) -> Self {
        Self(carrier)
    }

    /// Begins to send pages laid out as `layout` to `ticket`.
    pub fn start(&self, ticket: Ticket, layout: Fingerprint) -> Result<Pusher, TransferError> {
        if ticket.layout != layout {
            return Err(TransferError::Layout {
                wanted: ticket.layout,
                found: layout,
            });
        }
        Ok(Pusher {
            carrier: self.0.clone(),
            ticket,
            proof: Proof::default(),
        })
    }

    /// Moves one page; see [`PageCarrier::push`].
    pub async fn push(&self, ticket: &Ticket, page: u32, bytes: Bytes) -> Result<(), TransferError> {
        self.0.push(ticket, page, bytes).await
    }

    /// Ends a transfer; see [`PageCarrier::finish`].
    pub async fn finish(&self, ticket: &Ticket, pages: u32, digest: u128) -> Result<(), TransferError> {
        self.0.finish(ticket, Proof { pages, digest }).await
    }
}

impl fmt::Debug for Transfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Transfer")
    }
}

/// Sends the pages of one ticket. Dropped before the end it leaves the ticket to its deadline, or to the owner, who hears
/// of the sender's end on the request stream.
pub struct Pusher {
    carrier: Arc<dyn PageCarrier>,
    ticket: Ticket,
    proof: Proof,
}

impl Pusher {
    /// Sends a page and adds it to the proof.
    pub async fn push(&mut self, page: u32, bytes: Bytes) -> Result<(), TransferError> {
        let mut proof = self.proof;
        proof.add(page, &bytes);
        self.carrier.push(&self.ticket, page, bytes).await?;
        self.proof = proof;
        Ok(())
    }

    /// Ends the transfer. Returns what was sent, once the owner has found the same.
    pub async fn finish(self) -> Result<Proof, TransferError> {
        self.carrier.finish(&self.ticket, self.proof).await?;
        Ok(self.proof)
    }

    /// What was sent so far.
    pub fn proof(&self) -> Proof {
        self.proof
    }

    /// The ticket.
    pub fn ticket(&self) -> &Ticket {
        &self.ticket
    }
}

impl fmt::Debug for Pusher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Pusher(ticket {:032x}, {} pages)",
            self.ticket.id.0, self.proof.pages
        )
    }
}
