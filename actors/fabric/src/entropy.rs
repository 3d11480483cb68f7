//! Random numbers for ids and jitter. The seed is handed in, so that one number repeats a whole simulated run.
//!
//! Draw `n` is a bijective mix (the finaliser of SplitMix64) of a 128-bit key and the counter `n`: no lock, no state but
//! the counter. It is not a source of secrets.

use std::{
    collections::hash_map::RandomState,
    hash::{BuildHasher, Hash, Hasher},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use cluster_messages::{RequestId, TicketId};

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// A cheap handle to one sequence of random numbers; clones draw from the same sequence.
#[derive(Clone, Debug)]
pub struct Entropy(Arc<State>);

#[derive(Debug)]
struct State {
    key: [u64; 2],
    drawn: AtomicU64,
}

impl Entropy {
    /// The sequence of `seed`.
    pub fn from_seed(seed: u64) -> Self {
        Self::with_key([mix(seed), mix(seed ^ GOLDEN)])
    }

    /// A sequence no other process has: the standard library's hash keys come from the operating system.
    pub fn from_system() -> Self {
        let key = [0u8, 1].map(|half| RandomState::new().hash_one(half));
        Self::with_key(key)
    }

    fn with_key(key: [u64; 2]) -> Self {
        Self(Arc::new(State {
            key,
            drawn: AtomicU64::new(0),
        }))
    }

    /// An independent sequence named `label`, always the same for the same label. What one part draws then does not shift
    /// what another part draws.
    pub fn fork(&self, label: &str) -> Self {
        let mut hasher = Fnv(0xcbf2_9ce4_8422_2325);
        label.hash(&mut hasher);
        let [first, second] = self.0.key;
        Self::with_key([mix(first ^ hasher.0), mix(second.wrapping_add(hasher.0))])
    }

    /// The next number.
    pub fn next_u64(&self) -> u64 {
        let [first, second] = self.0.key;
        let count = self.0.drawn.fetch_add(1, Ordering::Relaxed);
        mix(first ^ mix(second.wrapping_add(count.wrapping_mul(GOLDEN))))
    }

    /// The next two numbers as one.
    pub fn next_u128(&self) -> u128 {
        (u128::from(self.next_u64()) << 64) | u128::from(self.next_u64())
    }

    /// A number below `bound`, which must not be 0.
    pub fn below(&self, bound: u64) -> u64 {
        assert!(bound > 0, "there is no number below 0");
        let wide = u128::from(self.next_u64()) * u128::from(bound);
        u64::try_from(wide >> 64).expect("the upper half of a product of two u64 is a u64")
    }

    /// Whether an event of `probability` (0 to 1) happens.
    pub fn chance(&self, probability: f64) -> bool {
        let unit = (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        unit < probability
    }

    /// `base` changed by at most `fraction` of itself either way: keeps peers from acting in step.
    pub fn jitter(&self, base: Duration, fraction: f64) -> Duration {
        let unit = (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        base.mul_f64((1.0 + fraction * (2.0 * unit - 1.0)).max(0.0))
    }

    /// A fresh request id.
    pub fn request_id(&self) -> RequestId {
        RequestId(self.next_u128())
    }

    /// A fresh ticket id.
    pub fn ticket_id(&self) -> TicketId {
        TicketId(self.next_u128())
    }
}

fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(GOLDEN);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// FNV-1a: labels must hash alike in every build, which the standard hasher does not promise.
struct Fnv(u64);

impl Hasher for Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests;
