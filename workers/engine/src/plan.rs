//! What each sequence runs in a step: decodes whole, prompts in chunks within a budget.

use std::collections::HashSet;

use cluster_messages::BlockHash;

use crate::{
    Config, Wanted,
    sequence::{Limits, Rank, Sequence},
};

/// Most prompt rows with log-probabilities in one step: a row is as long as the vocabulary.
const PROMPT_ROWS_MAX: u32 = 64;

/// One sequence's part of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Run {
    pub(crate) rank: Rank,
    /// How many tokens from `computed` on.
    pub(crate) tokens: u32,
    pub(crate) wanted: Wanted,
    pub(crate) is_prefill: bool,
}

impl Run {
    pub(crate) fn decode(sequence: &Sequence) -> Self {
        Self {
            rank: sequence.rank,
            tokens: sequence.remaining(),
            wanted: Wanted::Last,
            is_prefill: false,
        }
    }

    fn prefill(sequence: &Sequence, tokens: u32) -> Self {
        let is_last = sequence.computed + tokens == sequence.prefill_end;
        Self {
            rank: sequence.rank,
            tokens,
            wanted: match (sequence.scores_prompt(), is_last) {
                (true, _) => Wanted::All,
                (false, true) => Wanted::Last,
                (false, false) => Wanted::None,
            },
            is_prefill: true,
        }
    }
}

/// The room for prompts in one step.
#[derive(Debug)]
pub(crate) struct Room {
    tokens: u32,
    prompt_rows: u32,
    /// Pages that this step completes.
    fresh: HashSet<BlockHash>,
}

impl Room {
    /// What the decodes leave of the budget; never nothing, so that prompts get on beside any number of decodes.
    pub(crate) fn beside(decodes: &[Run], config: &Config) -> Self {
        let decoding: u32 = decodes.iter().map(|run| run.tokens).sum();
        let least = config.block_tokens.min(config.step_tokens);
        Self {
            tokens: config.step_tokens.saturating_sub(decoding).max(least),
            prompt_rows: PROMPT_ROWS_MAX,
            fresh: HashSet::new(),
        }
    }

    /// Whether the next page of a sequence is computed in this step by another one. Then it sits the step out, and finds
    /// the page afterwards.
    pub(crate) fn computes_for(&self, sequence: &Sequence, limits: Limits) -> bool {
        next_page(sequence, limits).is_some_and(|hash| self.fresh.contains(&hash))
    }

    /// How long the next chunk of a prompt can be, with at most `most` tokens.
    pub(crate) fn chunk(&self, sequence: &Sequence, most: u32, limits: Limits) -> u32 {
        let rows = if sequence.scores_prompt() {
            self.prompt_rows
        } else {
            u32::MAX
        };
        chunk(sequence, most.min(self.tokens).min(rows), limits)
    }

    /// Takes the room for such a chunk.
    pub(crate) fn take(&mut self, sequence: &Sequence, tokens: u32, limits: Limits) -> Run {
        self.tokens -= tokens;
        if sequence.scores_prompt() {
            self.prompt_rows -= tokens;
        }
        let end = sequence.computed + tokens;
        let pages = sequence.computed / limits.block_tokens..end / limits.block_tokens;
        self.fresh.extend(pages.filter_map(|page| sequence.hash(page)));
        Run::prefill(sequence, tokens)
    }
}

/// The page whose first position is next, if the sequence might find it.
fn next_page(sequence: &Sequence, limits: Limits) -> Option<BlockHash> {
    if !sequence.computed.is_multiple_of(limits.block_tokens) {
        return None;
    }
    let page = sequence.computed / limits.block_tokens;
    sequence.findable(limits).get(page as usize).copied()
}

/// How many tokens to run of a prompt: what is left of it, or at most `most`, then ending on a page where that is possible,
/// so that others can take over from there.
fn chunk(sequence: &Sequence, most: u32, limits: Limits) -> u32 {
    let left = sequence.prefill_end - sequence.computed;
    if left <= most {
        return left;
    }
    let end = (sequence.computed + most) / limits.block_tokens * limits.block_tokens;
    if end > sequence.computed {
        end - sequence.computed
    } else {
        most
    }
}
