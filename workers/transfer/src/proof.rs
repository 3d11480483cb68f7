//! What both sides compute over the pages of a transfer, to compare at its end.

use std::fmt;

use cluster_messages::blocks;

/// How many pages, and the XOR of their digests. Order does not matter; a lost, repeated, swapped or damaged page does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Proof {
    /// How many.
    pub pages: u32,
    /// XOR of [`blocks::page_digest`] over them.
    pub digest: u128,
}

impl Proof {
    /// Adds a page.
    pub fn add(&mut self, page: u32, bytes: &[u8]) {
        self.pages += 1;
        self.digest ^= blocks::page_digest(page, bytes);
    }
}

impl fmt::Display for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with digest {:032x}", self.pages, self.digest)
    }
}
