//! Rotary position embedding: angles once per step, rotation once per layer.

use super::Cpu;
use super::lanes::{Kernel, Lanes};

/// Which channels rotate together.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RopeStyle {
    /// Channel i with i + half.
    HalfSplit,
    /// Channel 2i with 2i + 1 (GGUF files of `llama`).
    Neighbour,
}

impl RopeStyle {
    /// The channels of pair `i` of `pairs`.
    pub const fn pair(self, i: usize, pairs: usize) -> (usize, usize) {
        match self {
            RopeStyle::HalfSplit => (i, i + pairs),
            RopeStyle::Neighbour => (2 * i, 2 * i + 1),
        }
    }
}

/// Cosines and sines of some tokens' positions; all layers of a step share them.
#[derive(Clone, Debug, Default)]
pub struct Rotations {
    pairs: usize,
    /// Per token the cosines, then the sines.
    table: Vec<f32>,
}

impl Rotations {
    /// For tokens at `positions`; angle i is position · `inverse_frequencies[i]`, and sine and cosine are multiplied by
    /// `magnitude` (1 but for yarn).
    pub fn new(positions: &[u32], inverse_frequencies: &[f32], magnitude: f32) -> Self {
        let pairs = inverse_frequencies.len();
        let mut table = Vec::with_capacity(positions.len() * pairs * 2);
        for position in positions {
            let angles = inverse_frequencies.iter().map(|frequency| *position as f32 * frequency);
            table.extend(angles.clone().map(|angle| angle.cos() * magnitude));
            table.extend(angles.map(|angle| angle.sin() * magnitude));
        }
        Self { pairs, table }
    }

    /// For tokens with angles of their own, `[tokens, pairs]`: more axes than one.
    ///
    /// # Panics
    /// When the angles are not whole tokens.
    pub fn from_angles(angles: &[f32], pairs: usize) -> Self {
        assert!(angles.len().is_multiple_of(pairs), "{pairs} angles for every token");
        let mut table = Vec::with_capacity(angles.len() * 2);
        for token in angles.chunks_exact(pairs) {
            table.extend(token.iter().map(|angle| angle.cos()));
            table.extend(token.iter().map(|angle| angle.sin()));
        }
        Self { pairs, table }
    }

    /// How many tokens.
    pub fn len(&self) -> usize {
        self.table.len() / (2 * self.pairs).max(1)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// The cosines and sines of a token.
    fn token(&self, token: usize) -> (&[f32], &[f32]) {
        self.table[token * 2 * self.pairs..][..2 * self.pairs].split_at(self.pairs)
    }
}

impl Cpu {
    /// Rotates the first `2 · pairs` channels of every head of `x`, `[rotations.len(), heads, head_dim]`, in place; the
    /// others stay.
    ///
    /// # Panics
    /// When `x` is not of this shape or heads are too narrow.
    pub fn rope(&self, x: &mut [f32], head_dim: usize, rotations: &Rotations, style: RopeStyle) {
        if rotations.is_empty() {
            return;
        }
        let (tokens, pairs) = (rotations.len(), rotations.pairs);
        assert!(2 * pairs <= head_dim, "{pairs} pairs in a head of {head_dim}");
        assert!(
            x.len().is_multiple_of(tokens * head_dim),
            "x is [{tokens}, heads, {head_dim}]"
        );
        let width = x.len() / tokens;
        for (token, row) in x.chunks_exact_mut(width.max(1)).enumerate() {
            let (cosines, sines) = rotations.token(token);
            self.isa().run(Rotate {
                row,
                head_dim,
                cosines,
                sines,
                style,
            });
        }
    }
}

/// One token's heads.
struct Rotate<'a> {
    row: &'a mut [f32],
    head_dim: usize,
    cosines: &'a [f32],
    sines: &'a [f32],
    style: RopeStyle,
}

impl Kernel for Rotate<'_> {
    #[inline(always)]
    fn run<L: Lanes>(self, _lanes: L) {
        for head in self.row.chunks_exact_mut(self.head_dim) {
            match self.style {
                RopeStyle::HalfSplit => rotate_halves(head, self.cosines, self.sines),
                RopeStyle::Neighbour => rotate_neighbours(head, self.cosines, self.sines),
            }
        }
    }
}

#[inline(always)]
fn rotate_halves(head: &mut [f32], cosines: &[f32], sines: &[f32]) {
    let (first, rest) = head.split_at_mut(cosines.len());
    for (((a, b), cos), sin) in first.iter_mut().zip(rest).zip(cosines).zip(sines) {
        (*a, *b) = (*a * cos - *b * sin, *b * cos + *a * sin);
    }
}

#[inline(always)]
fn rotate_neighbours(head: &mut [f32], cosines: &[f32], sines: &[f32]) {
    for (([a, b], cos), sin) in head.as_chunks_mut::<2>().0.iter_mut().zip(cosines).zip(sines) {
        (*a, *b) = (*a * cos - *b * sin, *b * cos + *a * sin);
    }
}

#[cfg(test)]
mod tests;
