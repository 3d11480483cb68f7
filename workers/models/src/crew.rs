//! The ranks of a worker and the one who tells them what to do.
//!
//! ```text
//!              ┌─ batch ─▶ thread of rank 0 ─┐
//!  coordinator ┼─ batch ─▶ thread of rank 1 ─┼─ logits of its part of the vocabulary ─▶ coordinator
//!              └─ batch ─▶ thread of rank 2 ─┘
//! ```
//! Threads wait in channels, so that an idle worker costs nothing. A rank that ends, by a panic too, drops its end of the
//! group: the others are woken with an error, every answer is an error, and the model has ended. A single rank computes in the
//! caller's thread.
//!
//! A step wakes each thread once and meets two times a layer. Measured with `examples/bench.rs` on two busy cores of an EPYC
//! (Zen 5, muse-nano, one thread a rank): a token takes 370 µs on one rank, 235 µs on four with whole experts each.

use std::{
    ops::Range,
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread::{self, JoinHandle},
};

use cluster_engine::ModelError;

use crate::{ragged::Ragged, rank::Rank};

/// Who computes steps.
pub(crate) enum Crew {
    Alone(Box<Rank>),
    Threads(Vec<Member>),
}

/// A rank with a thread of its own.
pub(crate) struct Member {
    /// None once it shall end.
    jobs: Option<SyncSender<Job>>,
    answers: Receiver<Result<Vec<f32>, String>>,
    /// Its part of the vocabulary.
    tokens: Range<usize>,
    thread: Option<JoinHandle<()>>,
}

/// A step: the batch, how many rows are wanted, and memory for their logits.
struct Job {
    batch: Arc<Ragged>,
    wanted: usize,
    logits: Vec<f32>,
}

impl Crew {
    /// Ranks with their parts of the vocabulary, in order.
    pub(crate) fn start(mut ranks: Vec<(Rank, Range<usize>)>) -> Result<Self, ModelError> {
        if ranks.len() > 1 {
            let members = ranks.into_iter().enumerate();
            return members
                .map(|(index, (rank, tokens))| Member::start(index, rank, tokens))
                .collect::<Result<_, _>>()
                .map(Crew::Threads);
        }
        match ranks.pop() {
            Some((rank, _)) => Ok(Crew::Alone(Box::new(rank))),
            None => Err(ModelError::Failed("a worker without ranks".into())),
        }
    }

    /// Runs a batch; `logits` are `[wanted, vocabulary]`.
    pub(crate) fn run(&mut self, batch: &Arc<Ragged>, wanted: usize, logits: &mut [f32]) -> Result<(), ModelError> {
        match self {
            Crew::Alone(rank) => rank
                .run(batch, logits)
                .map_err(|error| ModelError::Failed(error.to_string())),
            Crew::Threads(members) => {
                for member in members.iter() {
                    member.begin(batch, wanted)?;
                }
                let vocabulary = logits.len() / wanted.max(1);
                // Every answer is waited for, so that no rank is still at this step when the next begins.
                let ends: Vec<_> = members
                    .iter_mut()
                    .map(|member| member.end(vocabulary, logits))
                    .collect();
                ends.into_iter().collect()
            }
        }
    }
}

impl Member {
    fn start(index: usize, mut rank: Rank, tokens: Range<usize>) -> Result<Self, ModelError> {
        let (jobs, todo) = sync_channel::<Job>(1);
        let (done, answers) = sync_channel(1);
        let serve = move || {
            for Job {
                batch,
                wanted,
                mut logits,
            } in todo
            {
                logits.resize(rank.logits_len(wanted), 0.0);
                let answer = rank.run(&batch, &mut logits);
                drop(batch);
                let ended = answer.is_err();
                let answer = answer.map(|()| logits).map_err(|error| error.to_string());
                if done.send(answer).is_err() || ended {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name(format!("rank-{index}")).spawn(serve);
        let thread = thread.map_err(|error| ModelError::Failed(format!("no thread for rank {index}: {error}")))?;
        Ok(Self {
            jobs: Some(jobs),
            answers,
            tokens,
            thread: Some(thread),
        })
    }

    fn begin(&self, batch: &Arc<Ragged>, wanted: usize) -> Result<(), ModelError> {
        let job = Job {
            batch: Arc::clone(batch),
            wanted,
            logits: Vec::new(),
        };
        let sent = self.jobs.as_ref().map(|jobs| jobs.send(job));
        match sent {
            Some(Ok(())) => Ok(()),
            _ => Err(ended()),
        }
    }

    /// Copies its part into the rows of logits.
    fn end(&mut self, vocabulary: usize, logits: &mut [f32]) -> Result<(), ModelError> {
        let part = match self.answers.recv() {
            Ok(Ok(part)) => part,
            Ok(Err(error)) => return Err(ModelError::Failed(error)),
            Err(_) => return Err(ended()),
        };
        if !self.tokens.is_empty() && !logits.is_empty() {
            let rows = logits.chunks_exact_mut(vocabulary);
            for (row, part) in rows.zip(part.chunks_exact(self.tokens.len())) {
                row[self.tokens.clone()].copy_from_slice(part);
            }
        }
        Ok(())
    }
}

fn ended() -> ModelError {
    ModelError::Failed("a rank of the model has ended".into())
}

impl Drop for Crew {
    fn drop(&mut self) {
        let Crew::Threads(members) = self else {
            return;
        };
        // All are told before one is waited for.
        for member in members.iter_mut() {
            member.jobs = None;
        }
        for member in members.iter_mut() {
            if let Some(thread) = member.thread.take() {
                // A rank that panicked has been reported by its missing answer.
                let _ = thread.join();
            }
        }
    }
}

#[cfg(test)]
mod tests;
