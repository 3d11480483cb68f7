//! Counter-based random numbers: Philox 4x32 with ten rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3").
//!
//! A number is a pure function of (key, counter). There is no state that could differ between a request that ran alone, in
//! a batch, or on two machines one after the other.

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

/// Four random words for one counter.
pub(crate) fn philox(key: [u32; 2], counter: [u32; 4]) -> [u32; 4] {
    let (mut key, mut words) = (key, counter);
    for round in 0..10 {
        if round > 0 {
            key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
        }
        let (high_0, low_0) = multiply(MULTIPLIERS[0], words[0]);
        let (high_1, low_1) = multiply(MULTIPLIERS[1], words[2]);
        words = [high_1 ^ words[1] ^ key[0], low_1, high_0 ^ words[3] ^ key[1], low_0];
    }
    words
}

fn multiply(a: u32, b: u32) -> (u32, u32) {
    let product = u64::from(a) * u64::from(b);
    ((product >> 32) as u32, product as u32)
}

/// A number in `[0, 1)` with 53 random bits, for the token at `position` of a request with this seed.
pub(crate) fn uniform(seed: u64, position: u32) -> f64 {
    let words = philox([seed as u32, (seed >> 32) as u32], [position, 0, 0, 0]);
    let bits = (u64::from(words[0]) << 32 | u64::from(words[1])) >> 11;
    bits as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests;
