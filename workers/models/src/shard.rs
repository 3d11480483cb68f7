//! How a model is divided among the ranks of a worker, and which part one rank has.
//!
//! ```text
//!  heads       0 0 1 1 2 2 3 3      each rank some consecutive query heads, and the key and value heads they read
//!  experts     0 0 1 1 2 2 3 3      whole ones, or every rank a slice of each
//!  vocabulary  0 0 0 1 1 1 2 2 2 …  rows of the embedding and of the head
//! ```
//! Parts are contiguous and as even as possible; with more ranks than things some have none.

use std::ops::Range;

use crate::spec::{AttentionSpec, FfnSpec, ModelSpec};

/// More ranks than any machine has.
const TENSOR_MAX: usize = 1024;

/// How the ranks of a worker share its work.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ranks {
    /// How many ranks there are: heads, vocabulary and inner widths are divided among them.
    pub tensor: usize,
    /// 1: every rank has a slice of every expert. As many as `tensor`: every rank has some experts whole.
    pub expert: usize,
    /// As many as `tensor`: in long batches, what is not divided by heads or experts is divided by tokens. 1: it is not.
    pub sequence: usize,
}

/// Why a model cannot be divided so.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("ranks {field} is {got}: {rule}")]
pub struct RanksError {
    /// Which number.
    pub field: &'static str,
    /// Its value.
    pub got: usize,
    /// What must hold.
    pub rule: String,
}

impl Ranks {
    /// Nothing is divided.
    pub const ONE: Ranks = Ranks {
        tensor: 1,
        expert: 1,
        sequence: 1,
    };

    pub(crate) fn check(self, spec: &ModelSpec) -> Result<(), RanksError> {
        let wrong = |field, got, rule: String| Err(RanksError { field, got, rule });
        let Ranks {
            tensor,
            expert,
            sequence,
        } = self;
        if tensor == 0 || tensor > TENSOR_MAX {
            return wrong("tensor", tensor, format!("between 1 and {TENSOR_MAX} are possible"));
        }
        if expert != 1 && expert != tensor {
            return wrong("expert", expert, format!("it must be 1 or equal tensor, {tensor}"));
        }
        if sequence != 1 && sequence != tensor {
            return wrong("sequence", sequence, format!("it must be 1 or equal tensor, {tensor}"));
        }
        let sparse = spec.layers.iter().any(|layer| matches!(layer.ffn, FfnSpec::Experts(_)));
        if sequence > 1 && sparse && expert != tensor {
            let rule = format!("it needs whole experts on each rank: expert must equal tensor, {tensor}");
            return wrong("sequence", sequence, rule);
        }
        let first = &spec.layers[0].attention;
        let shape = |attention: &AttentionSpec| (attention.heads, attention.kv_heads, attention.head_dim);
        if tensor > 1 && spec.layers.iter().any(|layer| shape(&layer.attention) != shape(first)) {
            let rule = "only 1 is possible where layers have different heads".to_owned();
            return wrong("tensor", tensor, rule);
        }
        Ok(())
    }
}

/// One rank's part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shard {
    pub(crate) rank: usize,
    pub(crate) ranks: Ranks,
}

/// The heads of one rank.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Heads {
    /// Its query heads.
    pub(crate) query: Range<usize>,
    /// The key and value heads they read, each for as many of them: query head i of the rank reads the one at place
    /// i / (query heads / places). A head may stand at several places.
    pub(crate) kv: Vec<usize>,
}

impl Shard {
    /// All of it.
    #[cfg(test)]
    pub(crate) const WHOLE: Shard = Shard {
        rank: 0,
        ranks: Ranks::ONE,
    };

    /// Its share of `len` things.
    pub(crate) fn share(self, len: usize) -> Range<usize> {
        part(len, self.ranks.tensor, self.rank)
    }

    /// Its share of an inner width, in whole blocks of `unit`.
    pub(crate) fn inner(self, width: usize, unit: usize) -> Range<usize> {
        let units = self.share(width.div_ceil(unit));
        (units.start * unit).min(width)..(units.end * unit).min(width)
    }

    pub(crate) fn heads(self, attention: &AttentionSpec) -> Heads {
        let query = self.share(attention.heads);
        let group = attention.heads / attention.kv_heads;
        let read: Vec<usize> = query.clone().map(|head| head / group).collect();
        let mut distinct = read.clone();
        distinct.dedup();
        let readers = |head: &usize| read.iter().filter(|read| *read == head).count();
        let even = distinct.iter().all(|head| readers(head) * distinct.len() == read.len());
        Heads {
            query,
            kv: if even { distinct } else { read },
        }
    }

    /// The experts that it has, whole or in part.
    pub(crate) fn experts(self, count: usize) -> Range<usize> {
        if self.whole_experts() {
            self.share(count)
        } else {
            0..count
        }
    }

    /// Its share of every expert that it has.
    pub(crate) fn expert_inner(self, width: usize, unit: usize) -> Range<usize> {
        if self.whole_experts() {
            0..width
        } else {
            self.inner(width, unit)
        }
    }

    /// Whether every expert is on one rank alone.
    pub(crate) fn whole_experts(self) -> bool {
        self.ranks.expert > 1
    }
}

/// Part `index` of `len` things divided into `parts`.
pub(crate) fn part(len: usize, parts: usize, index: usize) -> Range<usize> {
    index * len / parts..(index + 1) * len / parts
}

#[cfg(test)]
mod tests;
