//! One rank: its part of the weights and of every block, its threads, and a voice among the other ranks.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cluster_kernels::{Collective, CollectiveError, Cpu, CpuOptions, KernelError, KvShape, KvStore, SharedMemory};

use crate::{
    decoder::{Group, Network, Scratch, Step},
    ragged::{Ragged, Rows},
};

/// Rows of a batch for each rank, below which dividing it by tokens is not worth the larger messages.
const ROWS_EACH: usize = 2;

/// A rank's part of the blocks of every class; none where it has no heads. The rank holds the lock while it computes,
/// whoever copies blocks in and out between steps: nobody ever waits.
#[derive(Clone, Default)]
pub(crate) struct Stores(Arc<Mutex<Vec<Option<KvStore>>>>);

impl Stores {
    /// Makes blocks of these shapes.
    pub(crate) fn allocate(&self, shapes: impl Iterator<Item = (KvShape, usize)>) -> Result<(), KernelError> {
        let store = |(shape, blocks): (KvShape, usize)| match shape.kv_heads {
            0 => Ok(None),
            _ => KvStore::new(shape, blocks).map(Some),
        };
        *self.lock() = shapes.map(store).collect::<Result<_, _>>()?;
        Ok(())
    }

    /// All of them. A panic of the rank ends the model, so what it left half written is never read.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Vec<Option<KvStore>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What computes a rank's part of every step.
pub(crate) struct Rank {
    network: Arc<Network>,
    cpu: Cpu,
    stores: Stores,
    scratch: Scratch,
    /// None: it is the only one.
    collective: Option<SharedMemory>,
    /// Whether long batches are divided by tokens.
    by_tokens: bool,
}

impl Rank {
    pub(crate) fn new(
        network: Arc<Network>,
        cpu: CpuOptions,
        collective: Option<SharedMemory>,
        by_tokens: bool,
    ) -> Result<Self, KernelError> {
        Ok(Self {
            network,
            cpu: Cpu::new(cpu)?,
            stores: Stores::default(),
            scratch: Scratch::default(),
            collective,
            by_tokens,
        })
    }

    /// Its blocks.
    pub(crate) fn stores(&self) -> Stores {
        self.stores.clone()
    }

    /// The numbers of `rows` rows of its part of the vocabulary.
    pub(crate) fn logits_len(&self, rows: usize) -> usize {
        rows * self.network.weights.tokens.len()
    }

    /// Writes its keys and values of all rows, and its part of the wanted rows' logits.
    pub(crate) fn run(&mut self, batch: &Ragged, logits: &mut [f32]) -> Result<(), CollectiveError> {
        let rows = batch.len(Rows::All);
        let collective = self.collective.as_ref().map(|collective| collective as &dyn Collective);
        let group = match collective {
            Some(collective) if self.by_tokens && rows >= ROWS_EACH * collective.ranks() => {
                Group::divided(collective, rows)
            }
            _ => Group::new(collective),
        };
        let step = Step {
            network: &self.network,
            cpu: &self.cpu,
            stores: &mut self.stores.lock(),
            batch,
            scratch: &mut self.scratch,
            group,
        };
        step.run(logits)
    }
}
