//! Pages in host memory under their hashes, the least recently used forgotten first, never more than a number of bytes.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use cluster_messages::{BlockHash, CachedPage, Fingerprint, StoreReport};

#[cfg(test)]
mod tests;

struct Page {
    bytes: Bytes,
    used: u64,
}

/// A bounded store of pages of one layout at a time: pages of another layout replace all that is there, since a worker whose
/// layout changed will never ask for the old ones.
pub(crate) struct PageStore {
    bytes_max: usize,
    bytes: usize,
    layout: Fingerprint,
    pages: HashMap<BlockHash, Page>,
    /// Order of use: tick → hash. Every page is here exactly once.
    order: BTreeMap<u64, BlockHash>,
    tick: u64,
}

impl PageStore {
    pub(crate) fn new(bytes_max: usize) -> Self {
        let (pages, order) = (HashMap::new(), BTreeMap::new());
        Self {
            bytes_max,
            bytes: 0,
            layout: Fingerprint::default(),
            pages,
            order,
            tick: 0,
        }
    }

    /// Keeps the pages there is room for.
    pub(crate) fn store(&mut self, layout: Fingerprint, pages: Vec<CachedPage>) -> StoreReport {
        self.adopt(layout);
        let mut report = StoreReport::default();
        for page in pages {
            if page.bytes.len() > self.bytes_max {
                continue;
            }
            report.kept += 1;
            if self.touch(page.hash) {
                continue;
            }
            while self.bytes + page.bytes.len() > self.bytes_max {
                self.forget_oldest();
                report.evicted += 1;
            }
            self.insert(page);
        }
        report
    }

    /// The longest prefix of `hashes` that is held whole.
    pub(crate) fn fetch(&mut self, layout: Fingerprint, hashes: &[BlockHash]) -> Vec<Bytes> {
        if layout != self.layout {
            return Vec::new();
        }
        let held = hashes.iter().take_while(|hash| self.pages.contains_key(hash)).count();
        // From the end: a page is of use only after those before it, so the first must go last.
        for hash in hashes[..held].iter().rev() {
            self.touch(*hash);
        }
        hashes[..held]
            .iter()
            .map(|hash| self.pages[hash].bytes.clone())
            .collect()
    }

    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    fn adopt(&mut self, layout: Fingerprint) {
        if layout != self.layout {
            self.pages.clear();
            self.order.clear();
            self.bytes = 0;
            self.layout = layout;
        }
    }

    /// Marks a page as used now; false if it is not here.
    fn touch(&mut self, hash: BlockHash) -> bool {
        let Some(page) = self.pages.get_mut(&hash) else {
            return false;
        };
        self.order.remove(&page.used);
        self.tick += 1;
        page.used = self.tick;
        self.order.insert(self.tick, hash);
        true
    }

    fn insert(&mut self, page: CachedPage) {
        self.tick += 1;
        self.bytes += page.bytes.len();
        self.order.insert(self.tick, page.hash);
        self.pages.insert(
            page.hash,
            Page {
                bytes: page.bytes,
                used: self.tick,
            },
        );
    }

    fn forget_oldest(&mut self) {
        let (_, hash) = self.order.pop_first().expect("bytes are held, so a page is");
        let page = self.pages.remove(&hash).expect("order and pages name the same hashes");
        self.bytes -= page.bytes.len();
    }
}
