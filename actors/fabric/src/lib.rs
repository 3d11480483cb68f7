//! What holds the actors of a cluster together: discovery, messaging, request streams and actor addresses, each behind a
//! trait with an in-memory twin, and the clock, the randomness and the admission credits that roles are given.
//!
//! This crate knows instances, nodes and how messages reach them. It does not know what a request computes
//! (`cluster-engine`), who should serve it (`cluster-routing`), or what an actor does with a message (`cluster-roles`).
//! No name or group is global to the process: many nodes live side by side in one test.
#![warn(missing_docs)]

pub mod clock;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod credits;
mod directory;
pub mod discovery;
mod entropy;
mod fabric;
pub mod memory;
pub mod messaging;
#[cfg(feature = "nats")]
pub mod nats;
pub mod protocol;
pub mod streams;
pub mod wire;

pub use clock::{Clock, SystemClock};
pub use credits::{Credit, Credits};
pub use directory::{Addr, Directory, Listening, Registered};
pub use discovery::{
    Change, Discovery, DiscoveryError, Document, DocumentChange, DocumentWatch, Documents, Lease, Revision, Watch,
};
pub use entropy::Entropy;
pub use fabric::Fabric;
pub use memory::MemoryFabric;
pub use messaging::{Delivery, Message, Messaging, MessagingError, Subscription};
#[cfg(feature = "nats")]
pub use nats::{Nats, NatsCredentials, NatsOptions};
pub use protocol::{Accepts, Call, CallContext, CallError, Protocol, ReplyTo};
pub use streams::{
    Closed, Incoming, Request, Responder, ServeError, Sink, Stream, StreamProtocol, Streams, TrySendError,
};
pub use wire::Wire;
