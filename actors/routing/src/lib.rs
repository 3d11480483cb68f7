//! Which instances serve a request, and why.
//!
//! ```text
//! KvEvents ──────► Index ─┐
//! Registrations ─► View ──┼─► choose ─► RouteDecision with every candidate, its cost and why it was or was not taken
//! LoadReports ───► View   │             or a Refusal with the same list
//! Route ──────────────────┘
//! ```
//! Everything is a value: the same events and questions give the same decisions, whoever asks and when. This crate does
//! not know how events travel, nor what a token means. What it believes may be old; that costs time, never a wrong token.
#![warn(missing_docs)]

mod choose;
mod encoders;
mod index;
mod policy;
mod view;

pub use choose::{Refusal, choose};
pub use encoders::{Encoders, choose_encoders};
pub use index::{Applied, Index};
pub use policy::{Policy, PolicyState, Weights};
pub use view::View;
