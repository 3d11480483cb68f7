//! Rotary position embedding: angles once per step, rotation once per layer.

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

    /// How many tokens.
    pub fn len(&self) -> usize {
        self.table.len() / (2 * self.pairs).max(1)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Rotates the first `2 · pairs` channels of every head of `x[len, heads, head_dim]`; the others stay.
    pub(crate) fn apply(&self, x: &mut [f32], head_dim: usize, style: RopeStyle) {
        if self.is_empty() {
            return;
        }
        assert!(
            2 * self.pairs <= head_dim,
            "{} pairs in a head of {head_dim}",
            self.pairs
        );
        assert_eq!(x.len() % (self.len() * head_dim), 0, "x is [tokens, heads, {head_dim}]");
        let row = x.len() / self.len();
        for (row, table) in x.chunks_exact_mut(row).zip(self.table.chunks_exact(2 * self.pairs)) {
            let (cosines, sines) = table.split_at(self.pairs);
            for head in row.chunks_exact_mut(head_dim) {
                rotate(head, cosines, sines, style);
            }
        }
    }
}

fn rotate(head: &mut [f32], cosines: &[f32], sines: &[f32], style: RopeStyle) {
    for (i, (cos, sin)) in cosines.iter().zip(sines).enumerate() {
        let (first, second) = style.pair(i, cosines.len());
        let (a, b) = (head[first], head[second]);
        head[first] = a * cos - b * sin;
        head[second] = b * cos + a * sin;
    }
}
