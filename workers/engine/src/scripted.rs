//! A model that takes its answers from scripts: what to emit, how many tokens at a time, where to stall, how to end.
//!
//! Scripts are handed to sequences in the order in which these first ask for a token, and start again after the last.
//! The blocks hold the tokens themselves. A sequence that comes from elsewhere brings tokens of answer along: the next
//! script that begins with them goes on. One prompt, the probe, can be set apart: it takes no script.

use std::collections::BTreeMap;

use cluster_messages::Fingerprint;
use serde::{Deserialize, Serialize};

use crate::{Batch, BlockId, KvKind, Model, ModelError, ModelInfo, Outputs, SeqId, Slice, cells::Cells};

/// One answer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Script {
    /// The tokens.
    pub emit: Vec<u32>,
    /// How many of them arrive in one step.
    #[serde(default = "one")]
    pub tokens_per_step: u32,
    /// What follows them.
    #[serde(default)]
    pub then: Then,
    /// Pauses, by rising `after`.
    #[serde(default)]
    pub stalls: Vec<Stall>,
}

fn one() -> u32 {
    1
}

/// How a script ends.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Then {
    /// With the end token, in the same step as the last tokens if there is room.
    #[default]
    Eos,
    /// As if the token limit were reached.
    Limit,
    /// With a failure of this sequence.
    Error,
}

/// Steps in which nothing comes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stall {
    /// Once this many tokens of the script are out.
    pub after: u32,
    /// For how many steps.
    pub steps: u32,
}

/// The model around the scripts.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptedConfig {
    /// At least one.
    pub scripts: Vec<Script>,
    /// The end token.
    pub eos: u32,
    /// Tokens of the vocabulary.
    pub vocabulary: u32,
    /// Longest sequence.
    pub context: u32,
    /// Tokens of a block.
    pub block_tokens: u32,
    /// Microseconds that a step takes.
    #[serde(default)]
    pub step_us: u64,
}

/// The model.
#[derive(Clone, Debug)]
pub struct Scripted {
    info: ModelInfo,
    config: ScriptedConfig,
    cells: Cells,
    parts: BTreeMap<SeqId, Part>,
    /// The script of the next sequence.
    next: usize,
    /// The prompt that takes no script.
    probe: Option<Vec<u32>>,
}

/// A sequence's place in its script.
#[derive(Clone, Copy, Debug)]
struct Part {
    prompt_len: u32,
    /// None until it first asks for a token.
    script: Option<usize>,
    /// The stall it is in, or was in last.
    stall_after: Option<u32>,
    /// Steps of that stall that are over.
    stalled: u32,
}

impl Scripted {
    /// A model without storage; the engine allocates it. Refuses scripts that cannot be played.
    pub fn new(config: ScriptedConfig) -> Result<Self, ModelError> {
        check(&config).map_err(ModelError::Failed)?;
        let scripts = format!("{:?}", config.scripts);
        let sizes = [config.eos, config.vocabulary, config.context]
            .map(u32::to_le_bytes)
            .concat();
        let block_tokens = config.block_tokens.to_le_bytes();
        Ok(Self {
            info: ModelInfo {
                width: 0,
                fingerprint: Fingerprint::of([b"scripted".as_slice(), scripts.as_bytes(), &sizes]),
                layout: Fingerprint::of([b"cells".as_slice(), &block_tokens]),
                vocabulary: config.vocabulary,
                context: config.context,
                classes: vec![Cells::class(KvKind::Full, config.block_tokens)],
            },
            cells: Cells::new(config.block_tokens),
            config,
            parts: BTreeMap::new(),
            next: 0,
            probe: None,
        })
    }

    /// Answers a prompt of exactly these tokens with the end token at once, and hands no script out for it: whoever tries
    /// whether the model answers leaves all scripts to those who come after.
    #[must_use]
    pub fn with_probe(mut self, prompt: Vec<u32>) -> Self {
        self.probe = Some(prompt);
        self
    }

    fn run(&mut self, slice: &Slice<'_>, out: &mut Outputs) {
        for (index, token) in slice.tokens.iter().enumerate() {
            self.cells
                .write(slice.tables[0], slice.start + index as u32, u64::from(*token));
        }
        let rows = slice.wanted.rows(slice.tokens.len());
        if rows == 0 {
            return;
        }
        (1..rows).for_each(|_| out.push_tokens(&[]));
        let end = slice.start + slice.tokens.len() as u32;
        let Self {
            parts,
            cells,
            config,
            probe,
            ..
        } = self;
        let part = parts
            .get_mut(&slice.seq)
            .expect("the engine begins a sequence before it runs it");
        let Some(position) = end.checked_sub(part.prompt_len) else {
            // Inside a prompt that is scored: nobody asks for a token.
            return out.push_tokens(&[]);
        };
        let prompt = cells.read(slice.tables[0], part.prompt_len).map(|word| word as u32);
        if probe.as_ref().is_some_and(|probe| prompt.eq(probe.iter().copied())) {
            return out.push_tokens(&[config.eos]);
        }
        let script = *part.script.get_or_insert_with(|| {
            let answer: Vec<u32> = cells
                .read(slice.tables[0], end)
                .skip(part.prompt_len as usize)
                .map(|word| word as u32)
                .collect();
            self.next += 1;
            choose(&config.scripts, self.next - 1, &answer)
        });
        let script = &config.scripts[script];
        if part.stalls(script, position) {
            out.push_tokens(&[]);
        } else {
            play(script, config.eos, position as usize, out);
        }
    }
}

/// Script number `next`, or the first one after it that begins with the answer so far.
fn choose(scripts: &[Script], next: usize, answer: &[u32]) -> usize {
    let mut in_turn = (0..scripts.len()).map(|offset| (next + offset) % scripts.len());
    in_turn
        .find(|script| scripts[*script].emit.starts_with(answer))
        .unwrap_or(next % scripts.len())
}

impl Part {
    fn stalls(&mut self, script: &Script, position: u32) -> bool {
        let Some(stall) = script.stalls.iter().find(|stall| stall.after == position) else {
            return false;
        };
        if self.stall_after != Some(position) {
            self.stall_after = Some(position);
            self.stalled = 0;
        }
        self.stalled = self.stalled.saturating_add(1);
        self.stalled <= stall.steps
    }
}

/// The row after `position` tokens of the script.
fn play(script: &Script, eos: u32, position: usize, out: &mut Outputs) {
    let rest = script.emit.get(position..).unwrap_or(&[]);
    let per_step = script.tokens_per_step as usize;
    let until_stall = script
        .stalls
        .iter()
        .map(|stall| stall.after as usize)
        .find(|after| *after > position);
    let count = per_step
        .min(rest.len())
        .min(until_stall.map_or(usize::MAX, |after| after - position));
    let ends = count == rest.len() && count < per_step && until_stall.is_none();
    match script.then {
        Then::Eos if ends => out.push_tokens(&[&rest[..count], &[eos]].concat()),
        Then::Limit if rest.is_empty() => out.push_limit(),
        Then::Error if rest.is_empty() => out.push_failure("the script ends with an error"),
        _ if rest.is_empty() => out.push_tokens(&[eos]),
        _ => out.push_tokens(&rest[..count]),
    }
}

fn check(config: &ScriptedConfig) -> Result<(), String> {
    if config.scripts.is_empty() {
        return Err("there is no script; give at least one".into());
    }
    let tokens = config
        .scripts
        .iter()
        .flat_map(|script| &script.emit)
        .chain([&config.eos]);
    if let Some(token) = tokens.copied().find(|token| *token >= config.vocabulary) {
        return Err(format!(
            "token id {token} is outside the vocabulary of {} tokens",
            config.vocabulary
        ));
    }
    for (index, script) in config.scripts.iter().enumerate() {
        if script.tokens_per_step == 0 {
            return Err(format!("script {index}: tokens_per_step is 0; it must be at least 1"));
        }
        if !script.stalls.is_sorted_by_key(|stall| stall.after) {
            return Err(format!("script {index}: stalls are not in the order of `after`"));
        }
    }
    Ok(())
}

impl Model for Scripted {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn allocate(&mut self, blocks: &[u32]) -> Result<(), ModelError> {
        self.cells.allocate(blocks[0]);
        Ok(())
    }

    fn forward(&mut self, batch: &Batch<'_>, out: &mut Outputs) -> Result<(), ModelError> {
        batch.slices.iter().for_each(|slice| self.run(slice, out));
        Ok(())
    }

    fn export(&self, _class: usize, block: BlockId, out: &mut Vec<u8>) {
        self.cells.export(block, out);
    }

    fn import(&mut self, _class: usize, block: BlockId, bytes: &[u8]) -> Result<(), ModelError> {
        self.cells.import(block, bytes)
    }

    fn step_cost_us(&self) -> u64 {
        self.config.step_us
    }

    fn begin(&mut self, seq: SeqId, prompt_len: u32) {
        self.parts.entry(seq).or_insert(Part {
            prompt_len,
            script: None,
            stall_after: None,
            stalled: 0,
        });
    }

    fn forget(&mut self, seq: SeqId) {
        self.parts.remove(&seq);
    }
}
