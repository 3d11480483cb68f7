//! A model without weights: a time model, and tokens that are a function of the sequence's history.
//!
//! ```text
//!  state(p) = mix(state(p - 1), token(p))            written to the block of position p
//!  logits after p = f(all states up to p)            read back from the blocks
//! ```
//! A state depends on everything before it, as real KV does. Any error of paging, reuse, transfer or migration gives other
//! tokens. With a window, a second class holds a word of each position too, and states depend on the last of them. With a
//! width, rows of numbers may stand in for tokens. The logits of a row are spread evenly over eight nats, with one favourite that stands out.

use cluster_messages::Fingerprint;
use serde::{Deserialize, Serialize};

use crate::{Batch, BlockId, KvKind, Model, ModelError, ModelInfo, Outputs, Slice, cells::Cells};

/// What to simulate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SimulatedConfig {
    /// Tokens it can choose from.
    pub vocabulary: u32,
    /// Longest sequence.
    pub context: u32,
    /// Tokens of a block.
    pub block_tokens: u32,
    /// Models with different seeds give different answers.
    pub seed: u64,
    /// What a step costs.
    pub cost: Cost,
}

/// The time of a step, as a sum of these parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cost {
    /// Microseconds of any step: reading the weights, launching.
    pub step_us: u64,
    /// Nanoseconds per token run: arithmetic.
    pub token_ns: u64,
    /// Nanoseconds per earlier position that the last token of each slice attends to: reading KV.
    pub attended_ns: u64,
}

impl Cost {
    fn of(&self, batch: &Batch<'_>) -> u64 {
        let tokens: u64 = batch.slices.iter().map(|slice| slice.tokens.len() as u64).sum();
        let attended: u64 = batch.slices.iter().map(|slice| u64::from(slice.start)).sum();
        self.step_us + (tokens * self.token_ns + attended * self.attended_ns) / 1000
    }
}

/// The model.
#[derive(Clone, Debug)]
pub struct Simulated {
    info: ModelInfo,
    config: SimulatedConfig,
    cells: Cells,
    window: Option<Window>,
    last_cost_us: u64,
}

/// The second KV class, of which only the last positions are read.
#[derive(Clone, Debug)]
struct Window {
    tokens: u32,
    cells: Cells,
}

impl Simulated {
    /// A model without storage; the engine allocates it.
    pub fn new(config: SimulatedConfig) -> Self {
        let words = [config.seed, u64::from(config.vocabulary), u64::from(config.context)].map(u64::to_le_bytes);
        let parts = [b"simulated".as_slice()]
            .into_iter()
            .chain(words.iter().map(<[u8; 8]>::as_slice));
        let block_tokens = config.block_tokens.to_le_bytes();
        Self {
            info: ModelInfo {
                width: 0,
                fingerprint: Fingerprint::of(parts),
                layout: Fingerprint::of([b"cells".as_slice(), &block_tokens]),
                vocabulary: config.vocabulary,
                context: config.context,
                classes: vec![Cells::class(KvKind::Full, config.block_tokens)],
            },
            config,
            cells: Cells::new(config.block_tokens),
            window: None,
            last_cost_us: 0,
        }
    }

    /// Gives it a second KV class: every state depends on what the window class holds of the last `tokens` positions.
    #[must_use]
    pub fn with_window(mut self, tokens: u32) -> Self {
        let block_tokens = self.config.block_tokens;
        self.window = Some(Window {
            tokens,
            cells: Cells::new(block_tokens),
        });
        self.info
            .classes
            .push(Cells::class(KvKind::Window { tokens }, block_tokens));
        self.info.fingerprint = also(self.info.fingerprint, b"window", tokens);
        self.info.layout = also(self.info.layout, b"window", tokens);
        self
    }

    /// Lets rows of `width` numbers stand in for tokens: its states then depend on every number.
    #[must_use]
    pub fn with_width(mut self, width: u32) -> Self {
        self.info.width = width;
        self.info.fingerprint = also(self.info.fingerprint, b"width", width);
        self
    }

    fn run(&mut self, slice: &Slice<'_>, out: &mut Outputs) {
        let table = slice.tables[0];
        let mut state = self.config.seed;
        let mut history = self.config.seed;
        for word in self.cells.read(table, slice.start) {
            state = word;
            history = mix(history, word);
        }
        let first_row = slice.tokens.len() - slice.wanted.rows(slice.tokens.len());
        for index in 0..slice.tokens.len() {
            let position = slice.start + index as u32;
            state = mix(state, input(slice, index, self.info.width));
            if let Some(window) = &mut self.window {
                state = window.step(slice.tables[1], position, state);
            }
            history = mix(history, state);
            self.cells.write(table, position, state);
            if index >= first_row {
                fill(history, out.push_logits(1, self.config.vocabulary as usize));
            }
        }
    }
}

impl Window {
    /// Writes the word of a position, and mixes those that are read from there into its state.
    fn step(&mut self, table: &[BlockId], position: u32, state: u64) -> u64 {
        self.cells.write(table, position, state.rotate_left(17));
        let first = (position + 1).saturating_sub(self.tokens);
        (first..=position).fold(state, |state, position| mix(state, self.cells.word(table, position)))
    }
}

fn also(fingerprint: Fingerprint, name: &[u8], value: u32) -> Fingerprint {
    Fingerprint::of([fingerprint.0.to_le_bytes().as_slice(), name, &value.to_le_bytes()])
}

/// What stands at a slice's token: its id, or the row that replaces it.
fn input(slice: &Slice<'_>, index: usize, width: u32) -> u64 {
    let position = slice.start + index as u32;
    let width = width as usize;
    let row = slice.embedded.iter().find_map(|embedded| {
        let offset = position.checked_sub(embedded.first)? as usize * width;
        embedded.rows.get(offset..offset + width)
    });
    match row {
        Some(row) => row
            .iter()
            .fold(1, |state, number| mix(state, u64::from(number.to_bits()))),
        None => u64::from(slice.tokens[index]),
    }
}

/// Logits from -4 to 4, and a favourite above them.
fn fill(history: u64, logits: &mut [f32]) {
    for (token, logit) in logits.iter_mut().enumerate() {
        let bits =
            (history ^ (token as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        *logit = (bits >> 40) as f32 * (8.0 / (1 << 24) as f32) - 4.0;
    }
    let favourite = mix(history, 0) as usize % logits.len();
    logits[favourite] = 6.0;
}

fn mix(a: u64, b: u64) -> u64 {
    let mixed = (a ^ b)
        .wrapping_add(0x9E37_79B9_7F4A_7C15)
        .wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed ^ (mixed >> 29)
}

impl Model for Simulated {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn allocate(&mut self, blocks: &[u32]) -> Result<(), ModelError> {
        self.cells.allocate(blocks[0]);
        if let Some(window) = &mut self.window {
            window.cells.allocate(blocks[1]);
        }
        Ok(())
    }

    fn forward(&mut self, batch: &Batch<'_>, out: &mut Outputs) -> Result<(), ModelError> {
        batch.slices.iter().for_each(|slice| self.run(slice, out));
        self.last_cost_us = self.config.cost.of(batch);
        Ok(())
    }

    fn export(&self, class: usize, block: BlockId, out: &mut Vec<u8>) {
        match &self.window {
            Some(window) if class > 0 => window.cells.export(block, out),
            _ => self.cells.export(block, out),
        }
    }

    fn import(&mut self, class: usize, block: BlockId, bytes: &[u8]) -> Result<(), ModelError> {
        match &mut self.window {
            Some(window) if class > 0 => window.cells.import(block, bytes),
            _ => self.cells.import(block, bytes),
        }
    }

    fn step_cost_us(&self) -> u64 {
        self.last_cost_us
    }
}

#[cfg(test)]
mod tests;
