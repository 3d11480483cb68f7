//! Embeddings in main memory under their digests, the least recently used forgotten first, never more than a number of bytes.
//!
//! Room is reserved before the work is done, so that nothing is computed that cannot be kept. What a ticket was given out for
//! is not forgotten before the ticket ends.

use std::collections::{BTreeMap, HashMap};

use cluster_messages::{Features, MediumDigest, RequestId};

#[cfg(test)]
mod tests;

/// Until when each request wants something kept, in milliseconds of the cluster clock.
pub(crate) type Holds = BTreeMap<RequestId, u64>;

struct Entry {
    features: Features,
    used: u64,
    holds: Holds,
}

/// A bounded store of embeddings.
pub(crate) struct FeatureStore {
    bytes_max: usize,
    /// Of entries and reservations.
    bytes: usize,
    entries: HashMap<MediumDigest, Entry>,
    /// Order of use: tick → digest. Every entry is here exactly once.
    order: BTreeMap<u64, MediumDigest>,
    tick: u64,
}

/// There is no room: everything is held or being made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{wanted} bytes of embeddings find no room: {taken} of {bytes_max} are held")]
pub(crate) struct Full {
    wanted: usize,
    taken: usize,
    bytes_max: usize,
}

impl FeatureStore {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            bytes: 0,
            entries: HashMap::new(),
            order: BTreeMap::new(),
            tick: 0,
        }
    }

    /// Whether so much could be kept if nothing else were.
    pub(crate) fn could_keep(&self, bytes: usize) -> bool {
        bytes <= self.bytes_max
    }

    /// Makes room for `wanted` bytes by forgetting what nobody holds, or changes nothing.
    pub(crate) fn reserve(&mut self, wanted: usize, now_ms: u64) -> Result<(), Full> {
        let mut freed = 0;
        let mut victims = Vec::new();
        let excess = (self.bytes + wanted).saturating_sub(self.bytes_max);
        for digest in self.order.values() {
            if freed >= excess {
                break;
            }
            let entry = &self.entries[digest];
            if entry.holds.values().all(|until| *until <= now_ms) {
                freed += entry.features.values.len();
                victims.push(*digest);
            }
        }
        if freed < excess {
            return Err(Full {
                wanted,
                taken: self.bytes - freed,
                bytes_max: self.bytes_max,
            });
        }
        victims.into_iter().for_each(|digest| self.forget(digest));
        self.bytes += wanted;
        Ok(())
    }

    /// Gives a reservation back.
    pub(crate) fn release(&mut self, reserved: usize) {
        self.bytes -= reserved;
    }

    /// Keeps embeddings in the place of their reservation.
    pub(crate) fn insert(&mut self, digest: MediumDigest, features: Features, reserved: usize, holds: Holds) {
        assert_eq!(
            features.values.len(),
            reserved,
            "room was reserved for these embeddings"
        );
        self.tick += 1;
        let entry = Entry {
            features,
            used: self.tick,
            holds,
        };
        self.order.insert(self.tick, digest);
        let before = self.entries.insert(digest, entry);
        assert!(before.is_none(), "{digest} is made only where it is not there yet");
    }

    /// Embeddings, used now and kept for `request` until then.
    pub(crate) fn find(&mut self, digest: MediumDigest, hold: Option<(RequestId, u64)>) -> Option<Features> {
        let entry = self.entries.get_mut(&digest)?;
        self.order.remove(&entry.used);
        self.tick += 1;
        entry.used = self.tick;
        self.order.insert(self.tick, digest);
        entry.holds.extend(hold);
        Some(entry.features.clone())
    }

    /// `request` has what it wanted; another part of it may still come until then.
    pub(crate) fn shorten(&mut self, digest: MediumDigest, request: RequestId, until_ms: u64) {
        let entry = self.entries.get_mut(&digest);
        if let Some(until) = entry.and_then(|entry| entry.holds.get_mut(&request)) {
            *until = until_ms.min(*until);
        }
    }

    /// Forgets holds that are over, so that popular entries do not collect them.
    pub(crate) fn expire(&mut self, now_ms: u64) {
        for entry in self.entries.values_mut() {
            entry.holds.retain(|_, until| *until > now_ms);
        }
    }

    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    fn forget(&mut self, digest: MediumDigest) {
        let entry = self.entries.remove(&digest).expect("only entries are forgotten");
        self.order.remove(&entry.used);
        self.bytes -= entry.features.values.len();
    }
}
