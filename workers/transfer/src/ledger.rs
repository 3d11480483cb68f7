//! Which pages of a ticket were taken. The rules of a transfer without its waiting: a call in, a verdict out.

use cluster_messages::{Ticket, TicketId};

use crate::TransferError;

/// The state of one open ticket.
#[derive(Debug)]
pub(crate) struct Ledger {
    id: TicketId,
    first_page: u32,
    end_page: u32,
    /// By distance from `first_page`.
    taken: Vec<bool>,
    finished: bool,
}

impl Ledger {
    /// Nothing taken yet.
    pub(crate) fn new(ticket: &Ticket) -> Result<Self, TransferError> {
        let (first_page, end_page) = (ticket.first_page, ticket.end_page);
        let wanted = end_page.checked_sub(first_page);
        let wanted = wanted.ok_or(TransferError::BadRange { first_page, end_page })?;
        Ok(Self {
            id: ticket.id,
            first_page,
            end_page,
            taken: vec![false; wanted as usize],
            finished: false,
        })
    }

    /// Whether `page` may be taken; changes nothing.
    pub(crate) fn check(&self, page: u32) -> Result<(), TransferError> {
        self.place(page).map(|_| ())
    }

    /// Takes `page`, once.
    pub(crate) fn take(&mut self, page: u32) -> Result<(), TransferError> {
        let place = self.place(page)?;
        self.taken[place] = true;
        Ok(())
    }

    /// Takes nothing from now on, once.
    pub(crate) fn finish(&mut self) -> Result<(), TransferError> {
        if std::mem::replace(&mut self.finished, true) {
            return Err(TransferError::Closed(self.id));
        }
        Ok(())
    }

    fn place(&self, page: u32) -> Result<usize, TransferError> {
        if self.finished {
            return Err(TransferError::Closed(self.id));
        }
        let place = page.checked_sub(self.first_page).map(|place| place as usize);
        let Some(place) = place.filter(|place| *place < self.taken.len()) else {
            return Err(TransferError::OutOfRange {
                page,
                first_page: self.first_page,
                end_page: self.end_page,
            });
        };
        if self.taken[place] {
            return Err(TransferError::Duplicate(page));
        }
        Ok(place)
    }
}
