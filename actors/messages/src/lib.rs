//! What roles say to each other: one plain type for each arrow of the request path, the ids in them, and block hashing.
//!
//! This crate knows one request and its peers. It does not know how a message travels (`cluster-fabric`), nor what a token
//! means (`cluster-text`), nor where it is computed (`cluster-engine`).
#![warn(missing_docs)]

pub mod blocks;
mod cache;
mod error;
mod generate;
mod ids;
mod media;
mod registration;
mod route;
mod text;

pub use blocks::{BlockHash, Fingerprint};
pub use cache::{CachedPage, Fetch, Store, StoreReport};
pub use error::{ErrorKind, RequestError};
pub use generate::{
    FinishReason, Generate, GenerateFrame, Generation, Penalties, Prefill, PrefillFrame, Sampling, Ticket, TicketId,
    TokenLogprobs, TokenOut, Usage,
};
pub use ids::{ActorPath, Deadline, Epoch, Header, InstanceRef, NodeId, PathError, RequestId, Role, TraceContext};
pub use media::{
    Encode, Encoded, FeatureTicket, Features, FetchFeatures, MediaFile, Medium, MediumDigest, MediumKind, MediumSource,
};
pub use registration::{Capacity, KvEvent, KvEventKind, LoadReport, Registration, SamplePoint};
pub use route::{Candidate, Cost, Route, RouteDecision};
pub use text::{
    Channel, ChatMessage, ChatPrompt, Content, JsonText, Part, TextFrame, TextInput, TextLogprob, TextRequest,
    ToolCall, ToolChoice, ToolHead,
};

#[cfg(test)]
mod tests;
