//! One binary for all tests of whole clusters.

mod architecture;
mod echo;
mod equality;
mod faults;
mod muse;
mod nats;
mod overload;
mod sandbox;
mod scripts;
mod topologies;
mod traces;
