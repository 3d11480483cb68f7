//! The control-plane gRPC API: what an operator can ask a running cluster.
//!
//! ```text
//! cluster status ──► Client ──gRPC──► serve ──► impl ControlPlane (the node)
//!                        Status, Plan, Trace, Event, Fault
//! ```
//! The wire form is `proto/cluster/v1/control_plane.proto`; the types here are what the two sides work with. Whoever
//! answers implements [`ControlPlane`]; how it knows the answers is not known here.

mod client;
mod convert;
mod fault;
mod model;
mod server;

pub use client::Client;
pub use fault::{Fault, FaultKind};
pub use model::{Blocks, Drain, Event, Instance, InstanceState, PlanView, Status};
pub use server::{ControlPlane, ServeError, serve};

/// The generated wire types and stubs.
mod wire {
    #![expect(
        clippy::allow_attributes,
        clippy::allow_attributes_without_reason,
        unreachable_pub,
        unused_qualifications,
        reason = "generated code"
    )]
    tonic::include_proto!("cluster.v1");
}

/// The descriptors of the service, for reflection.
const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

#[cfg(test)]
mod tests;
