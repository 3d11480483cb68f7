//! Which tokens a sequence has seen, for the penalties. Kept only for sequences that have penalties.

use std::collections::BTreeMap;

/// Distinct tokens, each with its count in the answer; zero for tokens of the prompt alone.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct History {
    answer_counts: BTreeMap<u32, u32>,
}

impl History {
    pub(crate) fn new(prompt: &[u32], answer: &[u32]) -> Self {
        let mut history = Self {
            answer_counts: prompt.iter().map(|token| (*token, 0)).collect(),
        };
        answer.iter().for_each(|token| history.push(*token));
        history
    }

    /// Adds a token of the answer.
    pub(crate) fn push(&mut self, token: u32) {
        *self.answer_counts.entry(token).or_default() += 1;
    }

    /// Each token seen, with its count in the answer.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, u32)> {
        self.answer_counts.iter().map(|(token, count)| (*token, *count))
    }
}
