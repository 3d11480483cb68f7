//! From the rows of a step to tokens, pages and ends.

use cluster_messages::{ErrorKind, FinishReason, RequestError, TokenLogprobs, TokenOut};

use crate::{
    BlockId, Engine, Event, JobKind, Outputs, Row, Wanted,
    plan::Run,
    sampler::{Draw, Sampler, logprobs},
    scheduler::finished,
    sequence::{Limits, Rank, Sequence},
};

/// What a run means for its sequence.
enum Outcome {
    /// A chunk of a prompt, not the last.
    Chunk,
    /// The model has nothing to say yet; the last token runs again.
    Stalled,
    /// These tokens come next.
    Tokens(Vec<TokenOut>),
    /// The answer is over without a further token.
    Limit,
    /// It cannot go on.
    Failed(String),
}

impl Engine {
    /// Goes through the rows of a step in the order of its runs.
    pub(crate) fn collect(&mut self, runs: &[Run], events: &mut Vec<Event>) {
        let mut first_row = 0;
        for run in runs {
            let rows = run.wanted.rows(run.tokens as usize);
            self.collect_run(run, first_row, events);
            first_row += rows;
        }
    }

    fn collect_run(&mut self, run: &Run, first_row: usize, events: &mut Vec<Event>) {
        let limits = self.scheduler.limits;
        let end_row = first_row + run.wanted.rows(run.tokens as usize);
        let (sequence, kv) = self.scheduler.parts(run.rank);
        if run.wanted == Wanted::All {
            score_prompt(sequence, &self.outputs, first_row, end_row);
        }
        let outcome = read(sequence, run, end_row, limits, &self.outputs, &mut self.sampler);
        let end = sequence.computed + run.tokens;
        sequence.computed = if matches!(outcome, Outcome::Stalled) {
            end - 1
        } else {
            end
        };
        sequence.rows.computed(sequence.computed);
        sequence.store(kv, limits);
        self.hand_out_pages(run.rank, events);
        self.hand_out_prompt(run.rank, events);
        self.scheduler.slide(run.rank);
        match outcome {
            Outcome::Chunk | Outcome::Stalled => {}
            Outcome::Tokens(tokens) => self.advance(run.rank, tokens, events),
            Outcome::Limit => self.finish(run.rank, FinishReason::Length, events),
            Outcome::Failed(message) => self.fail(run.rank, message, events),
        }
    }

    /// The pages of a `Prefill` job that are complete and wanted.
    fn hand_out_pages(&mut self, rank: Rank, events: &mut Vec<Event>) {
        let limits = self.scheduler.limits;
        let sequence = self.scheduler.get(rank);
        let JobKind::Prefill { end_page, .. } = sequence.kind else {
            return;
        };
        let complete = if sequence.remaining() == 0 {
            limits.pages(sequence.len())
        } else {
            sequence.computed / limits.block_tokens
        };
        let (job, first, end) = (sequence.job, sequence.pages_sent, complete.min(end_page));
        for page in first..end {
            let bytes = self.export(self.wanted_blocks(rank, page));
            events.push(Event::Page { job, page, bytes });
        }
        let sequence = self.scheduler.get_mut(rank);
        sequence.pages_sent = sequence.pages_sent.max(end);
    }

    /// The blocks of a page that whoever continues after the prompt reads; `BlockId::NONE` for the others.
    fn wanted_blocks(&self, rank: Rank, page: u32) -> Vec<BlockId> {
        let sequence = self.scheduler.get(rank);
        let first_pages = self.scheduler.kv.first_pages(sequence.len());
        let blocks = sequence.table.page(page).zip(first_pages);
        let wanted = blocks.map(|(block, first)| if page < first { BlockId::NONE } else { block });
        wanted.collect()
    }

    /// The log-probabilities of the prompt, once all of them are there.
    fn hand_out_prompt(&mut self, rank: Rank, events: &mut Vec<Event>) {
        let sequence = self.scheduler.get_mut(rank);
        let prompt_len = sequence.generation.prompt_len as usize;
        let is_complete = |scores: &mut Vec<_>| scores.len() == prompt_len;
        if let Some(logprobs) = sequence.prompt_logprobs.take_if(is_complete) {
            events.push(Event::Prompt {
                job: sequence.job,
                logprobs,
            });
        }
    }

    /// Adds tokens to an answer and ends it where it is over.
    pub(crate) fn advance(&mut self, rank: Rank, mut tokens: Vec<TokenOut>, events: &mut Vec<Event>) {
        let limits = self.scheduler.limits;
        let sequence = self.scheduler.get_mut(rank);
        let job = sequence.job;
        if matches!(sequence.kind, JobKind::Prefill { .. }) {
            self.prefilled(rank, tokens.swap_remove(0), events);
            return;
        }
        let mut reason = None;
        let mut taken = 0;
        while reason.is_none() && taken < tokens.len() {
            reason = sequence.push(tokens[taken].id, limits);
            taken += 1;
        }
        tokens.truncate(taken);
        self.scheduler.counters.chosen_tokens += taken as u64;
        events.push(Event::Tokens { job, tokens });
        if let Some(reason) = reason {
            self.finish(rank, reason, events);
        }
    }

    fn prefilled(&mut self, rank: Rank, first: TokenOut, events: &mut Vec<Event>) {
        let sequence = self.scheduler.get(rank);
        let (job, cached_tokens) = (sequence.job, sequence.cached_tokens);
        self.scheduler.counters.chosen_tokens += 1;
        self.scheduler.counters.cached_tokens += u64::from(cached_tokens);
        self.end(job);
        events.push(Event::Prefilled {
            job,
            first,
            cached_tokens,
        });
    }

    fn finish(&mut self, rank: Rank, reason: FinishReason, events: &mut Vec<Event>) {
        let sequence = self.scheduler.get(rank);
        events.push(finished(sequence, reason));
        let (job, cached_tokens) = (sequence.job, sequence.cached_tokens);
        // A `Decode` job reports what its prefill worker found, which that one has counted.
        if sequence.kind == JobKind::Whole {
            self.scheduler.counters.cached_tokens += u64::from(cached_tokens);
        }
        self.end(job);
    }

    fn fail(&mut self, rank: Rank, message: String, events: &mut Vec<Event>) {
        let job = self.scheduler.get(rank).job;
        self.end(job);
        let error = RequestError::new(ErrorKind::Internal, message);
        events.push(Event::Failed { job, error });
    }
}

/// Keeps the log-probabilities of prompt tokens that the rows `first_row..end_row` predict and that are not known yet.
fn score_prompt(sequence: &mut Sequence, outputs: &Outputs, first_row: usize, end_row: usize) {
    let top = sequence.generation.prompt_logprobs.unwrap_or(0);
    let prompt = &sequence.generation.tokens[..sequence.generation.prompt_len as usize];
    let Some(scores) = &mut sequence.prompt_logprobs else {
        return;
    };
    for (index, row) in (first_row..end_row).enumerate() {
        let predicted = sequence.computed as usize + index + 1;
        if predicted == scores.len() && predicted < prompt.len() {
            scores.push(Some(score(outputs.row(row), prompt[predicted], top)));
        }
    }
}

/// A model that gives tokens instead of logits is certain of them.
fn score(row: Row<'_>, token: u32, top: u8) -> TokenLogprobs {
    match row {
        Row::Logits(logits) => logprobs(logits, token, top),
        _ => TokenLogprobs {
            chosen: 0.0,
            top: if top > 0 { vec![(token, 0.0)] } else { Vec::new() },
        },
    }
}

fn read(
    sequence: &Sequence,
    run: &Run,
    end_row: usize,
    limits: Limits,
    outputs: &Outputs,
    sampler: &mut Sampler,
) -> Outcome {
    if run.wanted == Wanted::None {
        return Outcome::Chunk;
    }
    let row = outputs.row(end_row - 1);
    if let Row::Failed(message) = row {
        return Outcome::Failed(message.into());
    }
    if run.tokens < sequence.remaining() {
        return Outcome::Chunk;
    }
    let is_prefill = matches!(sequence.kind, JobKind::Prefill { .. });
    if !is_prefill && sequence.is_full(limits) {
        return Outcome::Limit;
    }
    match row {
        Row::Logits(logits) => choose(sequence, logits, sampler),
        Row::Tokens([]) => Outcome::Stalled,
        Row::Tokens(tokens) => Outcome::Tokens(tokens.iter().map(|token| given(sequence, row, *token)).collect()),
        Row::Limit => Outcome::Limit,
        Row::Failed(message) => Outcome::Failed(message.into()),
    }
}

fn choose(sequence: &Sequence, logits: &[f32], sampler: &mut Sampler) -> Outcome {
    let draw = Draw {
        sampling: &sequence.generation.sampling,
        position: sequence.len(),
        banned: sequence.banned(),
        history: sequence.history.as_ref(),
    };
    match sampler.choose(logits, &draw) {
        Some(token) => Outcome::Tokens(vec![given(sequence, Row::Logits(logits), token)]),
        None => Outcome::Failed("the model gave no token that may be chosen".into()),
    }
}

fn given(sequence: &Sequence, row: Row<'_>, id: u32) -> TokenOut {
    let logprobs = sequence.generation.logprobs.map(|top| Box::new(score(row, id, top)));
    TokenOut { id, logprobs }
}
