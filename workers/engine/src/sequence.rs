//! One job in the engine: its tokens, how far their KV is computed, and what is left to do.
//!
//! ```text
//!  tokens    [ prompt ............ | answer ...... ]
//!  computed  [ KV is in blocks .......... ]           always below the number of tokens when a row is needed
//!  stored    [ whole pages known by hash ]            ≤ computed
//! ```
//! Pure bookkeeping: it knows neither the scheduler nor the model.

use std::cmp::Reverse;

use cluster_messages::{BlockHash, Fingerprint, FinishReason, Generation, TokenLogprobs, TokenOut, Usage, blocks};

use crate::{Job, JobId, JobKind, SeqId, history::History, kv::Kv, rows::MediaRows, table::Table};

/// Who goes first: higher priority, then earlier arrival. No two sequences are equal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Rank {
    pub(crate) priority: Reverse<i32>,
    pub(crate) arrival: u64,
}

/// What a sequence waits for.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Phase {
    /// Blocks: it holds none.
    Queued,
    /// The host's answer about this many pages of a lower tier.
    Lookup { asked: u32 },
    /// A step that tells the host which pages to bring.
    Announce,
    /// Pages from a prefill worker, then `start`.
    Receive(Arrivals),
    /// Rows of media: all that it could compute without them is computed.
    Features,
    /// A step that hands out its first token, which a prefill worker chose.
    Started(TokenOut),
    /// Its turn in the batch.
    Compute,
}

/// The pages of a reservation, and which of them have come.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Arrivals {
    pub(crate) first_page: u32,
    pub(crate) arrived: Vec<bool>,
    pub(crate) missing: u32,
}

impl Arrivals {
    pub(crate) fn new(first_page: u32, end_page: u32) -> Self {
        let count = end_page - first_page;
        Self {
            first_page,
            arrived: vec![false; count as usize],
            missing: count,
        }
    }

    pub(crate) fn end_page(&self) -> u32 {
        self.first_page + self.arrived.len() as u32
    }
}

/// The engine's sizes as a sequence needs them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Limits {
    pub(crate) block_tokens: u32,
    /// The longest sequence: the model's context, or what the pool holds if that is less.
    pub(crate) context: u32,
    /// Whether pages are kept and found by hash.
    pub(crate) prefix_cache: bool,
}

impl Limits {
    /// Pages that hold `tokens` positions.
    pub(crate) fn pages(&self, tokens: u32) -> u32 {
        tokens.div_ceil(self.block_tokens)
    }
}

#[derive(Debug)]
pub(crate) struct Sequence {
    pub(crate) job: JobId,
    pub(crate) seq: SeqId,
    pub(crate) kind: JobKind,
    pub(crate) rank: Rank,
    /// Its `tokens` grow.
    pub(crate) generation: Generation,
    pub(crate) table: Table,
    pub(crate) phase: Phase,
    /// Positions whose KV is in the table's blocks.
    pub(crate) computed: u32,
    /// Up to here it is prompt work: the number of tokens when it got its blocks.
    pub(crate) prefill_end: u32,
    /// Hashes of whole pages; at least those of the prompt and those stored.
    hashes: Vec<BlockHash>,
    root: BlockHash,
    /// Pages known to the prefix tree.
    stored: u32,
    /// Pages a `Prefill` job has handed out or need not.
    pub(crate) pages_sent: u32,
    /// Prompt tokens found before the first was computed (for a `Decode` job: what its prefill worker found).
    pub(crate) cached_tokens: u32,
    /// Log-probabilities of the prompt so far, while they are wanted.
    pub(crate) prompt_logprobs: Option<Vec<Option<TokenLogprobs>>>,
    pub(crate) history: Option<History>,
    /// What stands in for the placeholders of media, while it is needed.
    pub(crate) rows: MediaRows,
    /// Whether the host heard how much was found.
    pub(crate) announced: bool,
    /// Whether a `Decode` job got its first token.
    pub(crate) started: bool,
    /// Since when it waits for blocks.
    pub(crate) queued_ms: u64,
}

impl Sequence {
    /// A sequence that waits since `now_ms`, with an empty table.
    pub(crate) fn new(job: Job, arrival: u64, table: Table, model: Fingerprint, limits: Limits, now_ms: u64) -> Self {
        let generation = job.generation;
        let rank = Rank {
            priority: Reverse(generation.priority),
            arrival,
        };
        let rows = MediaRows::of(&generation.media);
        let root = blocks::root(model, &generation.cache_salt);
        let (prompt, answer) = generation.tokens.split_at(generation.prompt_len as usize);
        let has_penalties = !generation.sampling.penalties.is_none();
        let history = has_penalties.then(|| History::new(prompt, answer));
        let scores_prompt = generation.prompt_logprobs.is_some() && job.kind != JobKind::Decode;
        let pages_sent = match job.kind {
            JobKind::Prefill { first_page, .. } => first_page,
            _ => 0,
        };
        Self {
            job: job.id,
            seq: SeqId(arrival),
            kind: job.kind,
            rank,
            hashes: blocks::chain(
                root,
                &generation.tokens,
                &generation.media,
                limits.block_tokens as usize,
            ),
            root,
            generation,
            table,
            phase: Phase::Queued,
            computed: 0,
            prefill_end: 0,
            stored: 0,
            pages_sent,
            cached_tokens: 0,
            prompt_logprobs: scores_prompt.then(|| vec![None]),
            history,
            rows,
            announced: false,
            started: false,
            queued_ms: now_ms,
        }
    }

    pub(crate) fn len(&self) -> u32 {
        self.generation.tokens.len() as u32
    }

    /// Tokens without KV.
    pub(crate) fn remaining(&self) -> u32 {
        self.len() - self.computed
    }

    /// Prompt tokens that this engine still has to compute; those of a `Decode` job are computed elsewhere.
    pub(crate) fn pending_tokens(&self) -> u32 {
        match (&self.phase, self.kind) {
            (_, JobKind::Decode) if !self.started => 0,
            (Phase::Queued, _) => self.len(),
            _ => self.prefill_end.saturating_sub(self.computed),
        }
    }

    pub(crate) fn is_prefilling(&self) -> bool {
        self.computed < self.prefill_end
    }

    /// Tokens of answer, those of earlier lives of the request included.
    pub(crate) fn answered(&self) -> u32 {
        self.len() - self.generation.prompt_len
    }

    /// Whether the answer is as long as it may be.
    pub(crate) fn is_full(&self, limits: Limits) -> bool {
        self.answered() >= self.generation.max_tokens || self.len() >= limits.context
    }

    /// Whether prompt rows are still to be collected. Found pages give no rows, so the cache is passed by until then.
    pub(crate) fn scores_prompt(&self) -> bool {
        self.prompt_logprobs.is_some()
    }

    /// Whether nothing has to be computed at all.
    pub(crate) fn has_nothing_to_do(&self, limits: Limits) -> bool {
        !matches!(self.kind, JobKind::Prefill { .. }) && self.is_full(limits) && !self.scores_prompt()
    }

    /// Pages that may be found: whole ones, and never the last token, whose row is needed.
    pub(crate) fn findable(&self, limits: Limits) -> &[BlockHash] {
        &self.hashes[..self.findable_len(limits)]
    }

    fn findable_len(&self, limits: Limits) -> usize {
        if self.scores_prompt() || !limits.prefix_cache {
            return 0;
        }
        let pages = (self.len() - 1) / limits.block_tokens;
        (pages as usize).min(self.hashes.len())
    }

    /// The position it computes at the earliest: that of a `Decode` job which waits for its pages is behind them.
    pub(crate) fn reader(&self) -> u32 {
        if self.kind == JobKind::Decode && !self.started {
            self.len()
        } else {
            self.computed
        }
    }

    /// The hash of a whole page, if it is known yet.
    pub(crate) fn hash(&self, page: u32) -> Option<BlockHash> {
        self.hashes.get(page as usize).copied()
    }

    /// It got blocks, of which the first `found` pages are filled.
    pub(crate) fn opened(&mut self, found: u32, limits: Limits) {
        self.prefill_end = self.len();
        self.stored = found;
        self.computed = 0;
        self.found_until(found * limits.block_tokens, limits);
    }

    /// It lost its blocks; its tokens stay.
    pub(crate) fn closed(&mut self, now_ms: u64) {
        self.phase = Phase::Queued;
        self.rows.forget();
        self.computed = 0;
        self.stored = 0;
        self.queued_ms = now_ms;
    }

    /// Positions up to `end`, a page boundary, were found. They count as cached until the job is announced with that
    /// number; pages with tokens of the answer are no prompt, even where a moved request finds them.
    fn found_until(&mut self, end: u32, limits: Limits) {
        let prompt_end = self.generation.prompt_len / limits.block_tokens * limits.block_tokens;
        if !self.announced {
            self.cached_tokens = end.min(prompt_end);
        }
        self.computed = end;
    }

    /// Takes over pages that others have stored since.
    pub(crate) fn find_more(&mut self, kv: &mut Kv, limits: Limits) {
        let from = self.computed / limits.block_tokens;
        let findable = self.findable_len(limits);
        if !self.computed.is_multiple_of(limits.block_tokens) || from as usize >= findable {
            return;
        }
        let end = kv.usable(&self.hashes[..findable], from, self.computed);
        if end > from {
            kv.take_over(&mut self.table, &self.hashes, from, end);
            self.stored = end;
            self.found_until(end * limits.block_tokens, limits);
        }
    }

    /// Takes over a page that came from a lower tier.
    pub(crate) fn restored(&mut self, kv: &mut Kv, limits: Limits) {
        let end = self.computed + limits.block_tokens;
        self.found_until(end, limits);
        self.store(kv, limits);
    }

    /// Makes all pages known that are complete by now.
    pub(crate) fn store(&mut self, kv: &mut Kv, limits: Limits) {
        if !limits.prefix_cache {
            return;
        }
        let size = limits.block_tokens as usize;
        while (self.stored + 1) * limits.block_tokens <= self.computed {
            let page = self.stored;
            let parent = page.checked_sub(1).map(|parent| self.hashes[parent as usize]);
            if self.hashes.len() as u32 == page {
                let start = page as usize * size;
                let tokens = &self.generation.tokens[start..start + size];
                self.hashes.push(blocks::next(
                    parent.unwrap_or(self.root),
                    start as u32,
                    tokens,
                    &self.generation.media,
                ));
            }
            kv.store(&mut self.table, page, self.hashes[page as usize], parent);
            self.stored += 1;
        }
    }

    /// Adds a token of the answer; the reason if it was the last one.
    pub(crate) fn push(&mut self, token: u32, limits: Limits) -> Option<FinishReason> {
        let may_stop = self.answered() >= self.generation.min_tokens;
        self.generation.tokens.push(token);
        if let Some(history) = &mut self.history {
            history.push(token);
        }
        if may_stop && self.generation.stop_tokens.contains(&token) {
            return Some(FinishReason::Stop);
        }
        self.is_full(limits).then_some(FinishReason::Length)
    }

    /// Tokens that must not be chosen next.
    pub(crate) fn banned(&self) -> &[u32] {
        if self.answered() < self.generation.min_tokens {
            &self.generation.stop_tokens
        } else {
            &[]
        }
    }

    pub(crate) fn usage(&self) -> Usage {
        Usage {
            prompt_tokens: self.generation.prompt_len,
            completion_tokens: self.answered(),
            cached_tokens: self.cached_tokens,
            reasoning_tokens: 0,
        }
    }
}
