//! What the processes of a cluster tell about themselves: spans, metrics and logs.
//!
//! ```text
//! tracing spans ─▶ OpenTelemetry ─┬▶ TraceStore (bounded, always)  ─▶ cluster trace
//!                                 └▶ OTLP (when an endpoint is set)
//! tracing events ─▶ stderr, as text or JSON
//! Metrics ─▶ OpenMetrics text at /metrics
//! ```
//! It names things and carries them; it decides nothing, and does not know the messages between roles: a request id and
//! a `traceparent` are strings here.
#![warn(missing_docs)]

mod metrics;
pub mod names;
mod propagation;
mod setup;
mod span;
mod store;
mod waterfall;

pub use metrics::{InstanceMetrics, Metrics, ModelMetrics};
pub use prometheus_client::metrics::{counter::Counter, gauge::Gauge, histogram::Histogram};
pub use propagation::{add_link, set_parent, traceparent_of};
pub use setup::{LogFormat, Settings, SetupError, Telemetry, init, init_for_tests};
pub use span::{SpanEvent, SpanRecord};
pub use store::TraceStore;
pub use waterfall::waterfall;
