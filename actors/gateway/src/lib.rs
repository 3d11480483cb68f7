//! The OpenAI-compatible HTTP endpoint.
//!
//! ```text
//! HTTP ─▶ routes ─▶ body ─▶ json ─▶ fields (one table) ─▶ TextRequest ─▶ Frontend
//!                                                                          │
//! HTTP ◀─ events (SSE) or answer (whole) ◀─ frames (checked) ◀─ TextStream ┘
//! ```
//! Files in a request pass `media` between fields and frontend: checked by their headers, fetched if the host is allowed.
//! It knows one HTTP request and the frontend it hands it to. It knows no tokens, no placement and no instances; whatever
//! it refuses, it refuses through the one table in `error`.
#![warn(missing_docs)]

mod account;
mod answer;
mod body;
mod chunks;
mod error;
mod events;
mod fields;
mod frames;
mod frontend;
mod gateway;
mod json;
mod logprobs;
mod media;
mod patience;
mod read;
mod response;
mod routes;
mod server;
mod settings;
mod stall;
mod usage;

pub use cluster_media::{HostRule, HostRules, RuleError};
pub use frontend::{Frontend, ModelCard, Readiness, TextStream};
pub use gateway::Gateway;
pub use media::{Internet, Network};
pub use response::Body;
pub use server::{Drained, serve};
pub use settings::{Environment, Limits, MediaLimits, Settings};
