//! Who computes the steps of a language model: one rank in the caller's thread, or several that share every step.

use std::{ops::Range, sync::Arc};

use cluster_engine::ModelError;

use crate::{
    crew::{Crew, Work},
    ragged::Ragged,
    rank::Rank,
};

pub(crate) enum Steps {
    Alone(Box<Rank>),
    Shared {
        crew: Crew<Step, Vec<f32>>,
        /// Each rank's part of the vocabulary.
        parts: Vec<Range<usize>>,
    },
}

/// A batch, and how many rows of logits are wanted.
pub(crate) struct Step {
    batch: Arc<Ragged>,
    wanted: usize,
}

impl Steps {
    /// Ranks with their parts of the vocabulary, in order.
    pub(crate) fn start(mut ranks: Vec<(Rank, Range<usize>)>) -> Result<Self, ModelError> {
        if ranks.len() > 1 {
            let (ranks, parts): (Vec<_>, Vec<_>) = ranks.into_iter().unzip();
            let crew = Crew::start(ranks.into_iter().map(work).collect())?;
            return Ok(Self::Shared { crew, parts });
        }
        let (rank, _) = ranks.pop().expect("a division has at least one rank");
        Ok(Self::Alone(Box::new(rank)))
    }

    /// Runs a batch; `logits` are `[wanted, vocabulary]`.
    pub(crate) fn run(&mut self, batch: &Arc<Ragged>, wanted: usize, logits: &mut [f32]) -> Result<(), ModelError> {
        let (crew, parts) = match self {
            Self::Alone(rank) => return rank.run(batch, logits).map_err(failed),
            Self::Shared { crew, parts } => (crew, parts),
        };
        let batch = Arc::clone(batch);
        let shares = crew.run(Step { batch, wanted })?;
        let vocabulary = logits.len() / wanted.max(1);
        let owned = parts.iter().zip(shares).filter(|(part, _)| !part.is_empty());
        for (part, share) in owned {
            let rows = logits.chunks_exact_mut(vocabulary.max(1));
            for (row, own) in rows.zip(share.chunks_exact(part.len())) {
                row[part.clone()].copy_from_slice(own);
            }
        }
        Ok(())
    }
}

fn work(mut rank: Rank) -> Work<Step, Vec<f32>> {
    Box::new(move |step: &Step| {
        let mut logits = vec![0.0; rank.logits_len(step.wanted)];
        rank.run(&step.batch, &mut logits).map_err(failed)?;
        Ok(logits)
    })
}

fn failed(error: impl ToString) -> ModelError {
    ModelError::Failed(error.to_string())
}
