//! The 128-bit hash chain that names KV blocks.
//!
//! ```text
//! root   = H("cluster.kv.root", fingerprint, salt)
//! hash_i = H(hash_{i-1}, tokens of block i, and for each medium in it: its digest and which of its rows)
//! ```
//! `H` is BLAKE3 cut to 128 bits. A cryptographic hash, because equal hashes make requests share memory: with a fast
//! non-cryptographic hash, a tenant who finds a collision reads another one's conversation.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Medium;

/// Names a block by everything that went into it: model, tenant salt, and all tokens up to its end.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BlockHash(pub u128);

impl fmt::Debug for BlockHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// Names a model (weights, tokenizer, arithmetic) or a page layout. Equal fingerprints mean interchangeable.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct Fingerprint(pub u128);

impl Fingerprint {
    /// The fingerprint of a list of byte strings; their lengths are part of it.
    pub fn of<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut hasher = blake3::Hasher::new();
        for part in parts {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        Self(cut(&hasher.finalize()))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The hash before the first block.
pub fn root(model: Fingerprint, salt: &str) -> BlockHash {
    let mut hasher = blake3::Hasher::new();
    hasher.update(b"cluster.kv.root");
    hasher.update(&model.0.to_le_bytes());
    hasher.update(salt.as_bytes());
    BlockHash(cut(&hasher.finalize()))
}

/// The hash of a block of `tokens` after `parent`. The first token stands at position `start`; `media` are those of the whole
/// sequence, of which only what lies in the block counts.
pub fn next(parent: BlockHash, start: u32, tokens: &[u32], media: &[Medium]) -> BlockHash {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&parent.0.to_le_bytes());
    for token in tokens {
        hasher.update(&token.to_le_bytes());
    }
    let end = start + tokens.len() as u32;
    for medium in media.iter().filter(|medium| medium.first < end && medium.end() > start) {
        hasher.update(&medium.digest.0.to_le_bytes());
        // Negative when the medium began in an earlier block.
        hasher.update(&(i64::from(medium.first) - i64::from(start)).to_le_bytes());
        hasher.update(&medium.tokens.to_le_bytes());
    }
    BlockHash(cut(&hasher.finalize()))
}

/// The hashes of the whole blocks of `tokens`; a last partial block has none.
pub fn chain(root: BlockHash, tokens: &[u32], media: &[Medium], block_tokens: usize) -> Vec<BlockHash> {
    let mut parent = root;
    tokens
        .chunks_exact(block_tokens)
        .enumerate()
        .map(|(index, block)| {
            parent = next(parent, (index * block_tokens) as u32, block, media);
            parent
        })
        .collect()
}

/// The digest of one page's bytes, with its number so that swapped pages are noticed. XXH3: it guards against accidents
/// between two parties that trust each other, and must not cost more than moving the page.
pub fn page_digest(page: u32, bytes: &[u8]) -> u128 {
    xxhash_rust::xxh3::xxh3_128_with_seed(bytes, page.into())
}

fn cut(hash: &blake3::Hash) -> u128 {
    let mut low = [0; 16];
    low.copy_from_slice(&hash.as_bytes()[..16]);
    u128::from_le_bytes(low)
}
