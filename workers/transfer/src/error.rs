//! Why a page or a whole transfer was refused.

use cluster_messages::{Epoch, ErrorKind, Fingerprint, InstanceRef, RequestError, TicketId};

use crate::Proof;

/// Why pages did not move.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TransferError {
    /// No owner of that name can be reached.
    #[error("{0} takes no pages here")]
    UnknownOwner(InstanceRef),
    /// The owner lives in another epoch than the ticket names; its reservation is gone.
    #[error("{owner} is stale: its present epoch is {}", known.0)]
    Stale {
        /// Whom the ticket names.
        owner: InstanceRef,
        /// The epoch that lives.
        known: Epoch,
    },
    /// A ticket in another instance's name.
    #[error("the ticket belongs to {owner}, not to {instance}")]
    NotOwner {
        /// Whom the ticket names.
        owner: InstanceRef,
        /// Who tried to open it.
        instance: InstanceRef,
    },
    /// The ticket is open already.
    #[error("ticket {:032x} is open already", .0.0)]
    AlreadyOpen(TicketId),
    /// The ticket is not open: done, given up, or never opened.
    #[error("ticket {:032x} is closed", .0.0)]
    Closed(TicketId),
    /// The ticket's deadline passed.
    #[error("the deadline of ticket {:032x} passed", .0.0)]
    Deadline(TicketId),
    /// A range of pages that ends before it begins.
    #[error("the range of pages {first_page}..{end_page} ends before it begins")]
    BadRange {
        /// Its first page.
        first_page: u32,
        /// One past its last.
        end_page: u32,
    },
    /// The sender lays out pages in another way.
    #[error("pages are laid out as {found}, the ticket wants {wanted}")]
    Layout {
        /// The ticket's layout.
        wanted: Fingerprint,
        /// The sender's.
        found: Fingerprint,
    },
    /// A page the ticket does not want.
    #[error("page {page} is outside of {first_page}..{end_page}")]
    OutOfRange {
        /// The page.
        page: u32,
        /// The first one wanted.
        first_page: u32,
        /// One past the last one wanted.
        end_page: u32,
    },
    /// A page that arrived before.
    #[error("page {0} arrived before")]
    Duplicate(u32),
    /// What arrived is not what was to be sent: pages are missing or damaged.
    #[error("{wanted} pages were wanted; the sender claims {claimed}, {arrived} arrived")]
    Incomplete {
        /// How many pages the ticket names.
        wanted: u32,
        /// What the sender says it sent.
        claimed: Proof,
        /// What arrived.
        arrived: Proof,
    },
}

impl From<TransferError> for RequestError {
    fn from(error: TransferError) -> Self {
        let kind = match error {
            TransferError::UnknownOwner(_) => ErrorKind::Unavailable,
            TransferError::Stale { .. } | TransferError::Closed(_) | TransferError::Incomplete { .. } => {
                ErrorKind::Lost
            }
            TransferError::Deadline(_) => ErrorKind::Deadline,
            TransferError::NotOwner { .. }
            | TransferError::AlreadyOpen(_)
            | TransferError::BadRange { .. }
            | TransferError::Layout { .. }
            | TransferError::OutOfRange { .. }
            | TransferError::Duplicate(_) => ErrorKind::Internal,
        };
        RequestError::new(kind, error.to_string())
    }
}
