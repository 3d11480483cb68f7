//! One running model: shared weights, a store of blocks and a thread pool of its own, behind the engine's `Model` trait.

use std::{collections::BTreeMap, sync::Arc};

use cluster_engine::{Batch, BlockId, Model, ModelError, ModelInfo, Outputs, SeqId, Slice};
use cluster_kernels::{Cpu, CpuOptions, KernelError, KvStore};

use crate::{
    classes::Classes,
    decoder::{Network, Scratch, Step},
    ragged::{Ragged, Rows},
};

/// What all instances of a model share.
pub(crate) struct Shared {
    pub(crate) network: Network,
    pub(crate) classes: Classes,
    pub(crate) info: ModelInfo,
    pub(crate) cpu: CpuOptions,
}

pub(crate) struct Instance {
    shared: Arc<Shared>,
    cpu: Cpu,
    stores: Vec<KvStore>,
    batch: Ragged,
    scratch: Scratch,
    /// Sequences that were given something impossible, and what. Their blocks hold nothing sensible, so every row they
    /// ask for fails until the engine forgets them.
    broken: BTreeMap<SeqId, String>,
}

impl Instance {
    pub(crate) fn new(shared: Arc<Shared>, cpu: CpuOptions) -> Result<Self, KernelError> {
        Ok(Self {
            cpu: Cpu::new(cpu)?,
            shared,
            stores: Vec::new(),
            batch: Ragged::default(),
            scratch: Scratch::default(),
            broken: BTreeMap::new(),
        })
    }

    /// Notes a sequence whose slice cannot be run.
    fn check(&mut self, slice: &Slice<'_>) {
        if let Some(problem) = problem(&self.shared.info, slice) {
            self.broken.entry(slice.seq).or_insert(problem);
        }
    }

    /// Moves the logits of the good slices and the failures of the others to `out`, in the order of the slices.
    fn push_rows(&self, batch: &Batch<'_>, logits: &[f32], out: &mut Outputs) {
        let vocabulary = self.shared.info.vocabulary as usize;
        let mut rest = logits;
        for slice in batch.slices {
            let rows = slice.wanted.rows(slice.tokens.len());
            if let Some(message) = self.broken.get(&slice.seq) {
                (0..rows).for_each(|_| out.push_failure(message.clone()));
            } else {
                let (own, others) = rest.split_at(rows * vocabulary);
                out.push_logits(rows, vocabulary).copy_from_slice(own);
                rest = others;
            }
        }
    }

    fn run(&mut self, logits: &mut [f32]) {
        let step = Step {
            network: &self.shared.network,
            cpu: &self.cpu,
            stores: &mut self.stores,
            batch: &self.batch,
            scratch: &mut self.scratch,
        };
        step.run(logits);
    }
}

impl Model for Instance {
    fn info(&self) -> &ModelInfo {
        &self.shared.info
    }

    fn allocate(&mut self, blocks: &[u32]) -> Result<(), ModelError> {
        let classes = &self.shared.classes.classes;
        if blocks.len() != classes.len() {
            let (got, expected) = (blocks.len(), classes.len());
            return Err(ModelError::Failed(format!(
                "blocks for {got} classes where there are {expected}"
            )));
        }
        let stores = classes.iter().zip(blocks);
        let stores = stores.map(|(class, blocks)| KvStore::new(class.shape, *blocks as usize));
        self.stores = stores
            .collect::<Result<_, _>>()
            .map_err(|error| ModelError::Memory(error.to_string()))?;
        Ok(())
    }

    fn forward(&mut self, batch: &Batch<'_>, out: &mut Outputs) -> Result<(), ModelError> {
        batch.slices.iter().for_each(|slice| self.check(slice));
        let broken = &self.broken;
        self.batch.fill(batch, |slice| !broken.contains_key(&slice.seq));
        let rows = self.batch.len(Rows::Wanted);
        let vocabulary = self.shared.info.vocabulary as usize;
        let all_run = self.broken.is_empty();
        if self.batch.tokens.is_empty() {
            self.push_rows(batch, &[], out);
        } else if all_run {
            self.run(out.push_logits(rows, vocabulary));
        } else {
            let mut logits = vec![0.0; rows * vocabulary];
            self.run(&mut logits);
            self.push_rows(batch, &logits, out);
        }
        Ok(())
    }

    fn export(&self, class: usize, block: BlockId, out: &mut Vec<u8>) {
        out.extend_from_slice(self.stores[class].block(block.0));
    }

    fn import(&mut self, class: usize, block: BlockId, bytes: &[u8]) -> Result<(), ModelError> {
        self.stores[class].import(block.0, bytes).map_err(|error| match error {
            KernelError::PageSize { expected, got } => ModelError::PageSize { expected, got },
            other => ModelError::Failed(other.to_string()),
        })
    }

    fn forget(&mut self, seq: SeqId) {
        self.broken.remove(&seq);
    }
}

/// Why a slice cannot be run, if so.
fn problem(info: &ModelInfo, slice: &Slice<'_>) -> Option<String> {
    let unknown = slice.tokens.iter().find(|&&token| token >= info.vocabulary);
    if let Some(token) = unknown {
        return Some(format!("token {token} is not in the vocabulary of {}", info.vocabulary));
    }
    let end = slice.start as usize + slice.tokens.len();
    if end > info.context as usize {
        return Some(format!(
            "position {} is beyond the context of {}",
            end - 1,
            info.context
        ));
    }
    None
}
