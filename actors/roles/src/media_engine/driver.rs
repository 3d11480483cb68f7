//! Runs the media model: one batch after the other, each on a thread that may compute for long.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use cluster_engine::{Decoded, MediaEncoder, ModelError};
use cluster_fabric::Clock;
use cluster_messages::{Deadline, Features, RequestError};
use tokio::{
    sync::{OwnedSemaphorePermit, mpsc, oneshot},
    task::JoinError,
};

use super::{batch, late};
use crate::{engine_host, media::OwnedMedium};

/// A decoded medium that waits for its batch.
pub(super) struct Item {
    pub(super) medium: OwnedMedium,
    pub(super) rows: u32,
    /// The latest of those who wait for it; moves when others join them.
    pub(super) deadline: Arc<AtomicU64>,
    /// Closed when nobody waits any longer.
    pub(super) reply: oneshot::Sender<Result<Features, RequestError>>,
    /// Its place among the decoded media, which are bounded.
    pub(super) _room: OwnedSemaphorePermit,
}

/// What can be seen of the work.
#[derive(Default)]
pub(super) struct Progress {
    /// Media in the batch that runs.
    pub(super) running: AtomicU32,
    /// Decoded files and batches since the start: grows as long as anything gets on.
    pub(super) steps: AtomicU64,
}

pub(super) struct Driver {
    pub(super) clock: Arc<dyn Clock>,
    pub(super) inbox: mpsc::UnboundedReceiver<Item>,
    pub(super) queue: VecDeque<Item>,
    pub(super) batch_max: usize,
    pub(super) batch_rows: u32,
    pub(super) progress: Arc<Progress>,
}

impl Driver {
    /// Runs until every handle is gone, or until the model fails: the reason.
    pub(super) async fn run(mut self, mut encoder: Box<dyn MediaEncoder>) -> Result<(), String> {
        while let Some(batch) = self.next_batch().await {
            self.progress.running.store(batch.len() as u32, Ordering::Relaxed);
            let ran = tokio::task::spawn_blocking(move || {
                let results = encode(encoder.as_mut(), &batch);
                (encoder, batch, results)
            });
            let (returned, batch, results) = ran.await.map_err(panic_text)?;
            encoder = returned;
            let results = results.map_err(|error| error.to_string())?;
            // A model without weights says how long a batch of the real one would take.
            let cost = Duration::from_micros(encoder.cost_us());
            if !cost.is_zero() {
                self.clock.sleep(cost).await;
            }
            self.progress.running.store(0, Ordering::Relaxed);
            self.progress.steps.fetch_add(1, Ordering::Relaxed);
            for (item, features) in batch.into_iter().zip(results) {
                // Those who waited may have left meanwhile.
                let _gone = item.reply.send(Ok(features));
            }
        }
        Ok(())
    }

    /// The next media to run together; none when nobody can ask any more.
    async fn next_batch(&mut self) -> Option<Vec<Item>> {
        loop {
            if self.queue.is_empty() {
                self.queue.push_back(self.inbox.recv().await?);
            }
            while let Ok(item) = self.inbox.try_recv() {
                self.queue.push_back(item);
            }
            self.drop_unwanted();
            let batch = batch::take(&mut self.queue, |item| item.rows, self.batch_max, self.batch_rows);
            if !batch.is_empty() {
                return Some(batch);
            }
        }
    }

    /// Lets go what nobody waits for, or waits for in vain.
    fn drop_unwanted(&mut self) {
        let clock = &self.clock;
        let is_late = |item: &Item| {
            let deadline = Deadline(item.deadline.load(Ordering::Relaxed));
            clock.remaining(deadline).is_zero()
        };
        self.queue.retain(|item| !item.reply.is_closed());
        let (late_items, in_time) = std::mem::take(&mut self.queue)
            .into_iter()
            .partition::<VecDeque<_>, _>(is_late);
        self.queue = in_time;
        for item in late_items {
            let _gone = item.reply.send(Err(late("it was encoded")));
        }
    }
}

fn encode(encoder: &mut dyn MediaEncoder, batch: &[Item]) -> Result<Vec<Features>, ModelError> {
    let width = encoder.info().width;
    let media: Vec<Decoded<'_>> = batch.iter().map(|item| item.medium.as_decoded()).collect();
    let results = encoder.encode(&media)?;
    if results.len() != batch.len() {
        let (got, wanted) = (results.len(), batch.len());
        return Err(ModelError::Failed(format!("{got} results for {wanted} media")));
    }
    let checked = batch.iter().zip(results).map(|(item, numbers)| {
        let wanted = item.rows as usize * width as usize;
        match numbers.len() {
            got if got == wanted => Ok(features_of(&numbers, item.rows, width)),
            got => Err(ModelError::Failed(format!(
                "{got} numbers where {} rows of {width} were expected",
                item.rows
            ))),
        }
    });
    checked.collect()
}

fn features_of(numbers: &[f32], tokens: u32, width: u32) -> Features {
    let mut values = vec![0; size_of_val(numbers)];
    for (bytes, number) in values.as_chunks_mut().0.iter_mut().zip(numbers) {
        *bytes = number.to_le_bytes();
    }
    Features {
        tokens,
        width,
        values: Bytes::from(values),
    }
}

fn panic_text(error: JoinError) -> String {
    match error.try_into_panic() {
        Ok(panic) => engine_host::panic_text(panic.as_ref()),
        Err(error) => error.to_string(),
    }
}
