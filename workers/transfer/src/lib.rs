//! Moving KV pages named by a ticket, from the instance that computed them to the one that reserved room for them.
//!
//! ```text
//! decode (owner)                              prefill (sender)
//! Tickets::open(ticket) ── ticket, by request stream ──► Transfer::start(ticket) → Pusher
//! Inbox::next ◄── page, bytes ──────────────────────────── Pusher::push   (waits while the owner is behind)
//! Inbox::next ◄── pages, digest ────────────────────────── Pusher::finish
//!      └── counts and digests what arrived ── verdict ──►
//! ```
//! The owner reserved the pages and alone frees them. Its [`Inbox`] is the ticket: while it lives, exactly the pages of the
//! ticket are taken, each once; when it is dropped, done, or past its deadline, every further write is refused. A write for
//! an earlier life of the owner is refused, too. So a late sender never reaches a page that was given to somebody else.
//!
//! This crate does not know what is in a page, nor who decided on the pair. [`Exchange`] moves pages within one process;
//! shared memory, TCP and NCCL stand behind the same [`PageCarrier`].
#![warn(missing_docs)]

mod error;
mod exchange;
mod inbox;
mod ledger;
mod proof;
mod transfer;

pub use error::TransferError;
pub use exchange::Exchange;
pub use inbox::{Arrived, Inbox, Tickets};
pub use proof::Proof;
pub use transfer::{PageCarrier, Pusher, Transfer};

#[cfg(test)]
mod tests;
