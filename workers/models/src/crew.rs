//! Ranks that work on the same jobs, each in a thread of its own.
//!
//! ```text
//!            ┌─ job ─▶ rank 0 ─┐
//!  the owner ┼─ job ─▶ rank 1 ─┼─ one result each ─▶ the owner
//!            └─ job ─▶ rank 2 ─┘
//! ```
//! Between jobs the threads sleep. A rank that panics drops its end of the collective, so that the others are released with an
//! error, and its results' channel closes: the owner gets an error and does not hang. A single rank works in the owner's thread.
//!
//! A step of the language model wakes each thread once and meets two times a layer. Measured with `examples/bench.rs` on two busy
//! cores of an EPYC (Zen 5, muse-nano, one thread a rank): a token takes 370 µs on one rank, 235 µs on four with whole experts
//! each.

use std::{
    sync::{Arc, mpsc},
    thread::{self, JoinHandle},
};

use cluster_engine::ModelError;

/// What a rank does with a job.
pub(crate) type Work<J, R> = Box<dyn FnMut(&J) -> Result<R, ModelError> + Send>;

/// The ranks. Dropping it ends their threads.
pub(crate) enum Crew<J, R> {
    Alone(Work<J, R>),
    Threads(Vec<Member<J, R>>),
}

pub(crate) struct Member<J, R> {
    /// None once it shall end.
    jobs: Option<mpsc::Sender<Arc<J>>>,
    results: mpsc::Receiver<Result<R, ModelError>>,
    thread: Option<JoinHandle<()>>,
}

impl<J: Send + Sync + 'static, R: Send + 'static> Crew<J, R> {
    /// Starts the ranks.
    pub(crate) fn start(mut ranks: Vec<Work<J, R>>) -> Result<Self, ModelError> {
        if ranks.len() == 1 {
            return Ok(Crew::Alone(ranks.remove(0)));
        }
        let members = ranks
            .into_iter()
            .enumerate()
            .map(|(rank, work)| Member::start(rank, work));
        Ok(Crew::Threads(members.collect::<Result<_, _>>()?))
    }

    /// Has all ranks do a job; their results in order. After an error nothing more can be had.
    pub(crate) fn run(&mut self, job: J) -> Result<Vec<R>, ModelError> {
        let members = match self {
            Crew::Alone(work) => return Ok(vec![work(&job)?]),
            Crew::Threads(members) => members,
        };
        let job = Arc::new(job);
        for member in members.iter() {
            if let Some(jobs) = &member.jobs {
                // A rank that has ended shows in its missing result.
                let _ = jobs.send(Arc::clone(&job));
            }
        }
        let results: Vec<_> = members
            .iter()
            .enumerate()
            .map(|(rank, member)| member.result(rank))
            .collect();
        let lost = results
            .iter()
            .position(|result| matches!(result, Err(Trouble::Ended(_))));
        // A rank that ended is the cause of what the others report.
        if let Some(rank) = lost {
            return Err(ModelError::Failed(format!("rank {rank} of the model has ended")));
        }
        results
            .into_iter()
            .map(|result| result.map_err(Trouble::into_error))
            .collect()
    }
}

/// Why a rank gave no result.
enum Trouble {
    Ended(usize),
    Failed(ModelError),
}

impl Trouble {
    fn into_error(self) -> ModelError {
        match self {
            Trouble::Ended(rank) => ModelError::Failed(format!("rank {rank} of the model has ended")),
            Trouble::Failed(error) => error,
        }
    }
}

impl<J: Send + Sync + 'static, R: Send + 'static> Member<J, R> {
    fn start(rank: usize, mut work: Work<J, R>) -> Result<Self, ModelError> {
        let (jobs, inbox) = mpsc::channel::<Arc<J>>();
        let (outbox, results) = mpsc::channel();
        let serve = move || {
            for job in inbox {
                let result = work(&job);
                // The owner uses its memory again once it has all results.
                drop(job);
                let failed = result.is_err();
                if outbox.send(result).is_err() || failed {
                    return;
                }
            }
        };
        let thread = thread::Builder::new()
            .name(format!("rank-{rank}"))
            .spawn(serve)
            .map_err(|error| ModelError::Failed(format!("no thread for rank {rank}: {error}")))?;
        Ok(Self {
            jobs: Some(jobs),
            results,
            thread: Some(thread),
        })
    }

    fn result(&self, rank: usize) -> Result<R, Trouble> {
        match self.results.recv() {
            Ok(result) => result.map_err(Trouble::Failed),
            Err(_) => Err(Trouble::Ended(rank)),
        }
    }
}

impl<J, R> Drop for Crew<J, R> {
    fn drop(&mut self) {
        let Crew::Threads(members) = self else {
            return;
        };
        // All are told before the first is waited for.
        for member in members.iter_mut() {
            member.jobs = None;
        }
        for thread in members.iter_mut().filter_map(|member| member.thread.take()) {
            // A panic was reported when its result was missed.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests;
