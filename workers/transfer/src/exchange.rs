//! Moving pages between instances of one process: the bytes are shared, not copied.

use std::{
    collections::{HashMap, hash_map::Entry},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use bytes::Bytes;
use cluster_fabric::clock::{self, Clock};
use cluster_messages::{ActorPath, Deadline, Epoch, InstanceRef, Ticket, TicketId};
use tokio::sync::{mpsc, oneshot};

use crate::{Arrived, Inbox, PageCarrier, Proof, Tickets, Transfer, TransferError, inbox::Delivery, ledger::Ledger};

/// Where owners and senders of one process meet. Clones are the same place.
#[derive(Clone)]
pub struct Exchange(Arc<Place>);

struct Place {
    clock: Arc<dyn Clock>,
    owners: Mutex<HashMap<ActorPath, Owner>>,
}

/// The present life of an actor that takes pages.
struct Owner {
    epoch: Epoch,
    desks: HashMap<TicketId, Desk>,
}

/// An open ticket.
struct Desk {
    ledger: Ledger,
    deadline: Deadline,
    inbox: mpsc::Sender<Delivery>,
}

impl Exchange {
    /// An exchange without owners.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self(Arc::new(Place {
            clock,
            owners: Mutex::default(),
        }))
    }

    /// The tickets of `owner`. A later life closes all tickets of the one before; an earlier one is refused.
    pub fn owner(&self, owner: InstanceRef) -> Result<Tickets, TransferError> {
        let mut owners = self.0.lock();
        let present = owners.entry(owner.path).or_insert_with(|| Owner::new(owner.epoch));
        if owner.epoch < present.epoch {
            let known = present.epoch;
            return Err(TransferError::Stale { owner, known });
        }
        if owner.epoch > present.epoch {
            *present = Owner::new(owner.epoch);
        }
        Ok(Tickets::new(self.clone(), owner))
    }

    /// A sender to all owners here.
    pub fn transfer(&self) -> Transfer {
        Transfer::new(Arc::new(self.clone()))
    }

    pub(crate) fn open(&self, ticket: Ticket, capacity: usize) -> Result<Inbox, TransferError> {
        let (inbox, deliveries) = mpsc::channel(capacity.max(1));
        let desk = Desk {
            ledger: Ledger::new(&ticket)?,
            deadline: ticket.deadline,
            inbox,
        };
        let mut owners = self.0.lock();
        match present(&mut owners, ticket.owner)?.desks.entry(ticket.id) {
            Entry::Occupied(_) => return Err(TransferError::AlreadyOpen(ticket.id)),
            Entry::Vacant(place) => place.insert(desk),
        };
        let registration = Box::new(OpenTicket {
            place: self.0.clone(),
            owner: ticket.owner,
            id: ticket.id,
        });
        Ok(Inbox::new(ticket, deliveries, &self.0.clock, registration))
    }

    pub(crate) fn open_len(&self, owner: InstanceRef) -> usize {
        let mut owners = self.0.lock();
        present(&mut owners, owner).map_or(0, |owner| owner.desks.len())
    }

    /// Runs `act` on the desk of `ticket`, if it is open and its deadline has not passed.
    fn at_desk<T>(
        &self,
        ticket: &Ticket,
        act: impl FnOnce(&mut Desk) -> Result<T, TransferError>,
    ) -> Result<T, TransferError> {
        let mut owners = self.0.lock();
        let desk = present(&mut owners, ticket.owner)?.desks.get_mut(&ticket.id);
        let desk = desk.ok_or(TransferError::Closed(ticket.id))?;
        if self.0.clock.remaining(desk.deadline).is_zero() {
            return Err(TransferError::Deadline(ticket.id));
        }
        act(desk)
    }

    /// Waits until the inbox has room, then puts in what `decide` makes of the desk at that moment.
    async fn deliver(
        &self,
        ticket: &Ticket,
        (inbox, deadline): (mpsc::Sender<Delivery>, Deadline),
        decide: impl FnOnce(&mut Desk) -> Result<Delivery, TransferError>,
    ) -> Result<(), TransferError> {
        let reserving = clock::before(&*self.0.clock, deadline, inbox.reserve());
        let room = reserving.await.map_err(|_| TransferError::Deadline(ticket.id))?;
        let room = room.map_err(|_| TransferError::Closed(ticket.id))?;
        // Nothing waits between the decision and the delivery: a dropped future has done both or neither.
        room.send(self.at_desk(ticket, decide)?);
        Ok(())
    }
}

#[async_trait]
impl PageCarrier for Exchange {
    async fn push(&self, ticket: &Ticket, page: u32, bytes: Bytes) -> Result<(), TransferError> {
        let way = self.at_desk(ticket, |desk| {
            desk.ledger.check(page)?;
            Ok(desk.way())
        })?;
        let take = |desk: &mut Desk| {
            desk.ledger.take(page)?;
            Ok(Delivery::Page(Arrived { page, bytes }))
        };
        self.deliver(ticket, way, take).await
    }

    async fn finish(&self, ticket: &Ticket, claimed: Proof) -> Result<(), TransferError> {
        let way = self.at_desk(ticket, |desk| Ok(desk.way()))?;
        let deadline = way.1;
        let (verdict, found) = oneshot::channel();
        let end = |desk: &mut Desk| {
            desk.ledger.finish()?;
            Ok(Delivery::End { claimed, verdict })
        };
        self.deliver(ticket, way, end).await?;
        let waiting = clock::before(&*self.0.clock, deadline, found);
        let found = waiting.await.map_err(|_| TransferError::Deadline(ticket.id))?;
        found.unwrap_or(Err(TransferError::Closed(ticket.id)))
    }
}

impl Place {
    fn lock(&self) -> MutexGuard<'_, HashMap<ActorPath, Owner>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Owner {
    fn new(epoch: Epoch) -> Self {
        Self {
            epoch,
            desks: HashMap::new(),
        }
    }
}

impl Desk {
    fn way(&self) -> (mpsc::Sender<Delivery>, Deadline) {
        (self.inbox.clone(), self.deadline)
    }
}

/// The owner, if it lives in the epoch that is named.
fn present(owners: &mut HashMap<ActorPath, Owner>, owner: InstanceRef) -> Result<&mut Owner, TransferError> {
    let present = owners.get_mut(&owner.path).ok_or(TransferError::UnknownOwner(owner))?;
    if present.epoch != owner.epoch {
        let known = present.epoch;
        return Err(TransferError::Stale { owner, known });
    }
    Ok(present)
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Exchange({} owners)", self.0.lock().len())
    }
}

/// Closes its ticket when dropped.
struct OpenTicket {
    place: Arc<Place>,
    owner: InstanceRef,
    id: TicketId,
}

impl Drop for OpenTicket {
    fn drop(&mut self) {
        let mut owners = self.place.lock();
        // A later life of the owner has closed it already.
        if let Ok(owner) = present(&mut owners, self.owner) {
            owner.desks.remove(&self.id);
        }
    }
}
