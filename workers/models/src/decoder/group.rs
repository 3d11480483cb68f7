//! What one rank says to the others in a step. With a single rank every operation does nothing.
//!
//! ```text
//!  all rows on every rank:   partial rows ── sum ──▶ complete rows
//!  rows divided by tokens:   own rows ── gather ──▶ all rows ─ … ─▶ partial rows ── sum ──▶ own rows, complete
//! ```
//! Both ways add the ranks' parts in the order of ranks, so they give the same bits.

use std::ops::Range;

use cluster_kernels::{Collective, CollectiveError};

/// One rank's end, for one batch.
#[derive(Clone, Copy)]
pub(crate) struct Group<'a> {
    collective: Option<&'a dyn Collective>,
    /// Rows of the batch, where they are divided.
    divided: Option<usize>,
}

impl<'a> Group<'a> {
    /// A rank with all the rows of a batch; `None`: it is the only one.
    pub(crate) fn new(collective: Option<&'a dyn Collective>) -> Self {
        Self {
            collective,
            divided: None,
        }
    }

    /// A rank with its own of `rows` rows.
    pub(crate) fn divided(collective: &'a dyn Collective, rows: usize) -> Self {
        Self {
            collective: Some(collective),
            divided: Some(rows),
        }
    }

    /// Whether rows are divided.
    pub(super) fn by_tokens(&self) -> bool {
        self.divided.is_some()
    }

    /// The others, where there are any.
    pub(super) fn collective(&self) -> Option<&'a dyn Collective> {
        self.collective
    }

    /// `values` become the sum over ranks.
    pub(super) fn sum(&self, values: &mut [f32]) -> Result<(), CollectiveError> {
        match self.collective {
            Some(collective) => collective.all_reduce(values),
            None => Ok(()),
        }
    }

    /// Leaves a rank's own of all rows.
    pub(super) fn keep_own(&self, rows: &mut Vec<f32>, width: usize) {
        if let (Some(collective), Some(all)) = (self.collective, self.divided) {
            let own = own(all, collective);
            rows.truncate(own.end * width);
            rows.drain(..own.start * width);
        }
    }

    /// A rank's own rows become all rows.
    pub(super) fn gather_rows(&self, rows: &mut Vec<f32>, width: usize) -> Result<(), CollectiveError> {
        let (Some(collective), Some(all)) = (self.collective, self.divided) else {
            return Ok(());
        };
        let share = share(all, collective) * width;
        rows.resize(share, 0.0);
        let mut gathered = vec![0.0; share * collective.ranks()];
        collective.all_gather(rows, &mut gathered)?;
        gathered.truncate(all * width);
        *rows = gathered;
        Ok(())
    }

    /// Every rank's part of all rows becomes the sum; where rows are divided, that of the own rows.
    pub(super) fn sum_rows(&self, rows: &mut Vec<f32>, width: usize) -> Result<(), CollectiveError> {
        let (Some(collective), Some(all)) = (self.collective, self.divided) else {
            return self.sum(rows);
        };
        let share = share(all, collective) * width;
        rows.resize(share * collective.ranks(), 0.0);
        let mut sums = vec![0.0; share];
        collective.reduce_scatter(rows, &mut sums)?;
        sums.truncate(own(all, collective).len() * width);
        *rows = sums;
        Ok(())
    }
}

/// Rows of a rank; the last ranks may have fewer, and are filled up where ranks meet.
fn share(rows: usize, collective: &dyn Collective) -> usize {
    rows.div_ceil(collective.ranks())
}

fn own(rows: usize, collective: &dyn Collective) -> Range<usize> {
    let share = share(rows, collective);
    let start = (collective.rank() * share).min(rows);
    start..(start + share).min(rows)
}
