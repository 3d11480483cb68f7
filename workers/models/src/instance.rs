//! One running model: shared weights, and ranks with blocks and threads of their own, behind the engine's `Model` trait.

use std::{collections::BTreeMap, sync::Arc};

use cluster_engine::{Batch, BlockId, Model, ModelError, ModelInfo, Outputs, SeqId, Slice};
use cluster_kernels::{CpuOptions, shared_memory};

use crate::{
    classes::Classes,
    decoder::Network,
    pages::HeadMap,
    ragged::{Ragged, Rows},
    rank::{Rank, Stores},
    shard::Ranks,
    steps::Steps,
};

/// What all instances with the same ranks share.
pub(crate) struct Shared {
    pub(crate) ranks: Ranks,
    /// Each rank's part of the weights.
    pub(crate) networks: Vec<Arc<Network>>,
    pub(crate) heads: HeadMap,
    pub(crate) classes: Classes,
    pub(crate) info: ModelInfo,
}

pub(crate) struct Instance {
    shared: Arc<Shared>,
    steps: Steps,
    /// Of each rank.
    stores: Vec<Stores>,
    batch: Arc<Ragged>,
    /// Sequences that were given something impossible, and what. Their blocks hold nothing sensible, so every row they
    /// ask for fails until the engine forgets them.
    broken: BTreeMap<SeqId, String>,
}

impl Instance {
    /// Starts the ranks, each of which computes with the threads of `cpu`.
    pub(crate) fn new(shared: Arc<Shared>, cpu: CpuOptions) -> Result<Self, ModelError> {
        let by_tokens = shared.ranks.sequence > 1;
        let mut collectives = match shared.ranks.tensor {
            1 => Vec::new(),
            tensor => shared_memory(tensor),
        }
        .into_iter();
        let mut ranks = Vec::new();
        for network in &shared.networks {
            let rank = Rank::new(Arc::clone(network), cpu, collectives.next(), by_tokens);
            let rank = rank.map_err(|error| ModelError::Failed(error.to_string()))?;
            ranks.push((rank, network.weights.tokens.clone()));
        }
        Ok(Self {
            stores: ranks.iter().map(|(rank, _)| rank.stores()).collect(),
            steps: Steps::start(ranks)?,
            shared,
            batch: Arc::default(),
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

    /// Lays the good slices out flat. The last step's memory is used again: the ranks have let go of it.
    fn fill(&mut self, batch: &Batch<'_>) {
        if Arc::get_mut(&mut self.batch).is_none() {
            self.batch = Arc::default();
        }
        let broken = &self.broken;
        if let Some(flat) = Arc::get_mut(&mut self.batch) {
            flat.fill(batch, |slice| !broken.contains_key(&slice.seq));
        }
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
        for (rank, stores) in self.stores.iter().enumerate() {
            let shape = |class: &crate::classes::Class| self.shared.heads.shape(rank, class.shape);
            let shapes = classes
                .iter()
                .map(shape)
                .zip(blocks.iter().map(|blocks| *blocks as usize));
            stores
                .allocate(shapes)
                .map_err(|error| ModelError::Memory(error.to_string()))?;
        }
        Ok(())
    }

    fn forward(&mut self, batch: &Batch<'_>, out: &mut Outputs) -> Result<(), ModelError> {
        batch.slices.iter().for_each(|slice| self.check(slice));
        self.fill(batch);
        let rows = self.batch.len(Rows::Wanted);
        let vocabulary = self.shared.info.vocabulary as usize;
        let all_run = self.broken.is_empty();
        if self.batch.tokens.is_empty() {
            self.push_rows(batch, &[], out);
        } else if all_run {
            self.steps.run(&self.batch, rows, out.push_logits(rows, vocabulary))?;
        } else {
            let mut logits = vec![0.0; rows * vocabulary];
            self.steps.run(&self.batch, rows, &mut logits)?;
            self.push_rows(batch, &logits, out);
        }
        Ok(())
    }

    fn export(&self, class: usize, block: BlockId, out: &mut Vec<u8>) {
        let locked: Vec<_> = self.stores.iter().map(Stores::lock).collect();
        let parts: Vec<Option<&[u8]>> = locked
            .iter()
            .map(|stores| Some(stores[class].as_ref()?.block(block.0)))
            .collect();
        let shape = self.shared.classes.classes[class].shape;
        self.shared.heads.gather(shape, &parts, out);
    }

    fn import(&mut self, class: usize, block: BlockId, bytes: &[u8]) -> Result<(), ModelError> {
        let shape = self.shared.classes.classes[class].shape;
        if bytes.len() != shape.block_bytes() {
            let (expected, got) = (shape.block_bytes(), bytes.len());
            return Err(ModelError::PageSize { expected, got });
        }
        for (rank, stores) in self.stores.iter().enumerate() {
            if let Some(store) = &mut stores.lock()[class] {
                let part = store.block_mut(block.0);
                self.shared.heads.scatter(shape, rank, bytes, part);
            }
        }
        Ok(())
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
    let width = info.width as usize;
    let misplaced = slice.embedded.iter().find(|run| {
        let (first, rows) = (run.first as usize, run.rows.len() / width);
        !run.rows.len().is_multiple_of(width) || run.first < slice.start || first + rows > end
    });
    if let Some(run) = misplaced {
        return Some(format!(
            "{} numbers of embeddings from position {} are not rows of {width} within positions {} to {end}",
            run.rows.len(),
            run.first,
            slice.start
        ));
    }
    if end > info.context as usize {
        return Some(format!(
            "position {} is beyond the context of {}",
            end - 1,
            info.context
        ));
    }
    None
}
