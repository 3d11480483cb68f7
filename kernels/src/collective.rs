//! What the ranks of one worker say to each other.
//!
//! ```text
//!  rank 0 ─┐                    ┌─ rank 0
//!  rank 1 ─┼─▶ all_reduce, … ──┼─▶ rank 1       every rank calls the same operations, in the same order, with equal lengths
//!  rank 2 ─┘                    └─ rank 2
//! ```
//! Sums are formed in the order of ranks, so that a result's bits do not depend on who comes first. Implementations: threads of
//! one process now; TCP and NCCL stand behind the same trait.

mod shared_memory;

pub use shared_memory::{SharedMemory, shared_memory};

/// A rank of the group is gone, or left the common order; whoever is told so cannot go on.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("rank {rank} of {ranks} lost the others: {reason}")]
pub struct CollectiveError {
    /// Who noticed.
    pub rank: usize,
    /// Of how many.
    pub ranks: usize,
    /// What it noticed.
    pub reason: String,
}

/// One rank's end of a group. Lengths are in numbers.
pub trait Collective: Send {
    /// Which rank this is, counted from 0.
    fn rank(&self) -> usize;

    /// How many there are.
    fn ranks(&self) -> usize;

    /// `values` becomes the sum over all ranks' `values`.
    fn all_reduce(&self, values: &mut [f32]) -> Result<(), CollectiveError>;

    /// `all` becomes all ranks' `own`, one after the other; it is `ranks` times as long.
    fn all_gather(&self, own: &[f32], all: &mut [f32]) -> Result<(), CollectiveError>;

    /// `own` becomes this rank's part of the sum over all ranks' `all`, which is `ranks` times as long.
    fn reduce_scatter(&self, all: &[f32], own: &mut [f32]) -> Result<(), CollectiveError>;

    /// Part `r` of `parts` goes to rank `r`; what comes from rank `r` is part `r` of the result. Parts may have any lengths.
    fn all_to_all(&self, parts: &[&[f32]], received: &mut Vec<Vec<f32>>) -> Result<(), CollectiveError>;

    /// `values` becomes rank `root`'s.
    fn broadcast(&self, root: usize, values: &mut [f32]) -> Result<(), CollectiveError>;
}
