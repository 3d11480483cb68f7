//! Which blocks each instance holds, followed from its events.
//!
//! An instance numbers its events 1, 2, 3 … in each life. Those that come early wait for the missing ones, so that
//! reordering heals itself; what was lost is healed by a snapshot, which the caller asks the instance for on
//! [`Applied::Gap`]. A new life starts with nothing. The index is never larger than what the instances hold, plus
//! `EARLY_EVENTS_MAX` events each.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    hash::{BuildHasherDefault, Hasher},
};

use cluster_messages::{ActorPath, BlockHash, Epoch, InstanceRef, KvEvent, KvEventKind};

/// Early events kept per instance while an earlier one is missing.
const EARLY_EVENTS_MAX: usize = 1024;

/// What became of an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Applied {
    /// The index follows the instance up to this event, or further.
    Applied,
    /// An earlier event is missing. Ask the instance for a snapshot, if this lasts.
    Gap {
        /// The first missing event.
        expected: u64,
    },
    /// Known already, or of an earlier life.
    Stale,
}

/// Which blocks each instance holds.
#[derive(Debug, Default)]
pub struct Index {
    instances: BTreeMap<ActorPath, Held>,
    /// Who holds each block, sorted by path.
    holders: HashMap<BlockHash, Vec<ActorPath>, BuildHasherDefault<LowBits>>,
}

type Blocks = HashSet<BlockHash, BuildHasherDefault<LowBits>>;

#[derive(Debug)]
struct Held {
    epoch: Epoch,
    /// Gone for good in this life: events that still arrive are echoes.
    is_gone: bool,
    /// The last event that was applied.
    seq: u64,
    blocks: Blocks,
    early: BTreeMap<u64, KvEventKind>,
}

impl Held {
    fn new(epoch: Epoch) -> Self {
        Self {
            epoch,
            is_gone: false,
            seq: 0,
            blocks: Blocks::default(),
            early: BTreeMap::new(),
        }
    }
}

impl Index {
    /// An index of nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Follows an event.
    pub fn apply(&mut self, event: &KvEvent) -> Applied {
        let InstanceRef { path, epoch } = event.instance;
        if !self.enter(event.instance) {
            return Applied::Stale;
        }
        let held = self.instances.entry(path).or_insert_with(|| Held::new(epoch));
        let expected = held.seq + 1;
        if let KvEventKind::Snapshot(blocks) = &event.kind {
            if event.seq < held.seq {
                return Applied::Stale;
            }
            self.replace(path, event.seq, blocks);
        } else if event.seq < expected {
            return Applied::Stale;
        } else if event.seq > expected {
            keep_early(&mut held.early, event);
            return Applied::Gap { expected };
        } else {
            self.change(path, event.seq, &event.kind);
        }
        self.catch_up(path)
    }

    /// Forgets an instance that is gone. Events of this life that still arrive change nothing; those of the next one do.
    pub fn forget(&mut self, instance: InstanceRef) {
        if !self.enter(instance) {
            return;
        }
        self.clear(instance.path);
        let held = self
            .instances
            .entry(instance.path)
            .or_insert_with(|| Held::new(instance.epoch));
        held.is_gone = true;
        held.early.clear();
    }

    /// How many blocks from the start of `blocks` each instance holds; those that hold none are left out.
    pub fn overlaps(&self, blocks: &[BlockHash]) -> BTreeMap<InstanceRef, u32> {
        let mut overlaps = BTreeMap::new();
        let mut note = |path: ActorPath, count: u32| overlaps.extend(self.reference(path).map(|held| (held, count)));
        let mut following = blocks.first().map_or(&[][..], |block| self.holders(block)).to_vec();
        let mut count = 0;
        for block in blocks {
            let holders = self.holders(block);
            // Instances that share a prefix share most of it: as a rule the lists are equal.
            if holders != following {
                let lost = following.extract_if(.., |path| holders.binary_search(path).is_err());
                lost.for_each(|path| note(path, count));
            }
            if following.is_empty() {
                break;
            }
            count += 1;
        }
        following.into_iter().for_each(|path| note(path, count));
        overlaps
    }

    /// What the index believes of an instance: how many blocks, and the XOR of their hashes. The instance can compute the
    /// same over what it really holds.
    pub fn checksum(&self, instance: InstanceRef) -> (usize, u128) {
        let held = self
            .instances
            .get(&instance.path)
            .filter(|held| held.epoch == instance.epoch);
        held.map_or((0, 0), |held| {
            let sum = held.blocks.iter().fold(0, |sum, block| sum ^ block.0);
            (held.blocks.len(), sum)
        })
    }

    /// The first event that is missing, for an instance whose later events wait.
    pub fn missing(&self, instance: InstanceRef) -> Option<u64> {
        let held = self.instances.get(&instance.path)?;
        (held.epoch == instance.epoch && !held.early.is_empty()).then_some(held.seq + 1)
    }

    /// Different blocks known, over all instances.
    pub fn len(&self) -> usize {
        self.holders.len()
    }

    /// Whether no block is known.
    pub fn is_empty(&self) -> bool {
        self.holders.is_empty()
    }

    /// Whether something of this life is to be followed. A new life starts with nothing.
    fn enter(&mut self, instance: InstanceRef) -> bool {
        let Some(held) = self.instances.get(&instance.path) else {
            return true;
        };
        if instance.epoch > held.epoch {
            self.clear(instance.path);
            self.instances.insert(instance.path, Held::new(instance.epoch));
            return true;
        }
        instance.epoch == held.epoch && !held.is_gone
    }

    /// Who holds a block, by path.
    fn holders(&self, block: &BlockHash) -> &[ActorPath] {
        self.holders.get(block).map_or(&[], Vec::as_slice)
    }

    fn reference(&self, path: ActorPath) -> Option<InstanceRef> {
        let epoch = self.instances.get(&path)?.epoch;
        Some(InstanceRef { path, epoch })
    }

    fn replace(&mut self, path: ActorPath, seq: u64, blocks: &[BlockHash]) {
        self.clear(path);
        self.store(path, blocks);
        let Some(held) = self.instances.get_mut(&path) else {
            return;
        };
        held.seq = seq;
        held.early = held.early.split_off(&(seq + 1));
    }

    fn change(&mut self, path: ActorPath, seq: u64, kind: &KvEventKind) {
        match kind {
            KvEventKind::Stored(blocks) => self.store(path, blocks),
            KvEventKind::Removed(blocks) => self.remove(path, blocks),
            KvEventKind::Snapshot(blocks) => return self.replace(path, seq, blocks),
        }
        if let Some(held) = self.instances.get_mut(&path) {
            held.seq = seq;
        }
    }

    /// Applies early events whose turn has come.
    fn catch_up(&mut self, path: ActorPath) -> Applied {
        loop {
            let Some(held) = self.instances.get_mut(&path) else {
                return Applied::Applied;
            };
            let expected = held.seq + 1;
            let Some(kind) = held.early.remove(&expected) else {
                let waits = !held.early.is_empty();
                return if waits {
                    Applied::Gap { expected }
                } else {
                    Applied::Applied
                };
            };
            self.change(path, expected, &kind);
        }
    }

    fn store(&mut self, path: ActorPath, blocks: &[BlockHash]) {
        let Some(held) = self.instances.get_mut(&path) else {
            return;
        };
        for block in blocks {
            if held.blocks.insert(*block) {
                let paths = self.holders.entry(*block).or_default();
                let position = paths.partition_point(|holder| *holder < path);
                paths.insert(position, path);
            }
        }
    }

    fn remove(&mut self, path: ActorPath, blocks: &[BlockHash]) {
        let Some(held) = self.instances.get_mut(&path) else {
            return;
        };
        for block in blocks {
            if held.blocks.remove(block) {
                release(&mut self.holders, *block, path);
            }
        }
    }

    fn clear(&mut self, path: ActorPath) {
        let Some(held) = self.instances.get_mut(&path) else {
            return;
        };
        for block in std::mem::take(&mut held.blocks) {
            release(&mut self.holders, block, path);
        }
    }
}

fn release(
    holders: &mut HashMap<BlockHash, Vec<ActorPath>, BuildHasherDefault<LowBits>>,
    block: BlockHash,
    path: ActorPath,
) {
    if let Some(paths) = holders.get_mut(&block) {
        paths.retain(|holder| *holder != path);
        if paths.is_empty() {
            holders.remove(&block);
        }
    }
}

fn keep_early(early: &mut BTreeMap<u64, KvEventKind>, event: &KvEvent) {
    early.insert(event.seq, event.kind.clone());
    if early.len() > EARLY_EVENTS_MAX {
        // The oldest are the ones that the coming snapshot covers.
        early.pop_first();
    }
}

/// Takes the low half of a block hash as it is: it is the output of a cryptographic hash already, and no table here is
/// keyed by anything a client could choose.
#[derive(Clone, Copy, Debug, Default)]
struct LowBits(u64);

impl Hasher for LowBits {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u128(&mut self, value: u128) {
        self.0 = value as u64;
    }
}

#[cfg(test)]
mod tests;
