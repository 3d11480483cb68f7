//! Who runs in a step, who waits, who gives blocks back.
//!
//! ```text
//!  submit ─▶ waiting (by rank) ──admit: blocks suffice──▶ running (by rank) ──plan──▶ Run: n tokens of one sequence
//!                  ▲                                          │
//!                  └───────── preempt: a better rank needs blocks
//! ```
//! The order of a step: all decodes by rank, each with the block it needs, taken from the worst rank if none is left;
//! then admission, strictly by rank, so that a big prompt is never overtaken for ever; then prompts by rank, in chunks,
//! within what is left of the budget. The best rank always gets on, so every sequence does in its turn. A sequence that
//! runs never makes way for one that waits, whatever their priorities.

use std::collections::{BTreeMap, HashMap};

use cluster_messages::FinishReason;

use crate::{
    Config, Counters, Event, JobId, JobKind, KvClass,
    kv::Kv,
    plan::{Room, Run},
    sequence::{Arrivals, Limits, Phase, Rank, Sequence},
};

#[derive(Debug)]
pub(crate) struct Scheduler {
    config: Config,
    pub(crate) limits: Limits,
    pub(crate) kv: Kv,
    pub(crate) counters: Counters,
    waiting: BTreeMap<Rank, Sequence>,
    running: BTreeMap<Rank, Sequence>,
    ranks: HashMap<JobId, Rank>,
}

impl Scheduler {
    pub(crate) fn new(config: Config, classes: &[KvClass], limits: Limits) -> Self {
        Self {
            kv: Kv::new(classes, &config.blocks),
            config,
            limits,
            counters: Counters::default(),
            waiting: BTreeMap::new(),
            running: BTreeMap::new(),
            ranks: HashMap::new(),
        }
    }

    /// Jobs in the engine.
    pub(crate) fn len(&self) -> usize {
        self.ranks.len()
    }

    pub(crate) fn knows(&self, job: JobId) -> bool {
        self.ranks.contains_key(&job)
    }

    pub(crate) fn enqueue(&mut self, sequence: Sequence) {
        self.ranks.insert(sequence.job, sequence.rank);
        self.waiting.insert(sequence.rank, sequence);
    }

    pub(crate) fn waiting(&self) -> impl Iterator<Item = &Sequence> {
        self.waiting.values()
    }

    pub(crate) fn running(&self) -> impl Iterator<Item = &Sequence> {
        self.running.values()
    }

    /// A running sequence; none if the job waits or is unknown.
    pub(crate) fn running_job(&mut self, job: JobId) -> Option<&mut Sequence> {
        let rank = self.ranks.get(&job)?;
        self.running.get_mut(rank)
    }

    /// A sequence, whether it runs or waits.
    pub(crate) fn job_mut(&mut self, job: JobId) -> Option<&mut Sequence> {
        let rank = self.ranks.get(&job)?;
        self.running.get_mut(rank).or_else(|| self.waiting.get_mut(rank))
    }

    pub(crate) fn get(&self, rank: Rank) -> &Sequence {
        &self.running[&rank]
    }

    pub(crate) fn get_mut(&mut self, rank: Rank) -> &mut Sequence {
        self.parts(rank).0
    }

    /// A running sequence together with the memory its table lies in.
    pub(crate) fn parts(&mut self, rank: Rank) -> (&mut Sequence, &mut Kv) {
        let sequence = self.running.get_mut(&rank).expect("callers name sequences that run");
        (sequence, &mut self.kv)
    }

    /// Running sequences in a phase.
    pub(crate) fn in_phase(&self, wanted: impl Fn(&Phase) -> bool) -> Vec<Rank> {
        let matching = self.running.values().filter(|sequence| wanted(&sequence.phase));
        matching.map(|sequence| sequence.rank).collect()
    }

    /// Takes a job out and frees its blocks.
    pub(crate) fn remove(&mut self, job: JobId) -> Option<Sequence> {
        let rank = self.ranks.remove(&job)?;
        if let Some(sequence) = self.waiting.remove(&rank) {
            return Some(sequence);
        }
        let mut sequence = self.running.remove(&rank).expect("a known job waits or runs");
        self.kv.close(&mut sequence.table);
        Some(sequence)
    }

    /// Whether a step would do anything.
    pub(crate) fn has_work(&self) -> bool {
        let acts = |phase: &Phase| matches!(phase, Phase::Compute | Phase::Started(_) | Phase::Announce);
        self.running.values().any(|sequence| acts(&sequence.phase)) || self.can_admit()
    }

    fn can_admit(&self) -> bool {
        let first = self.waiting.first_key_value();
        first.is_some_and(|(_, sequence)| self.admissible(sequence).is_some())
    }

    /// How many pages a waiting sequence would find; none if it cannot run now.
    fn admissible(&self, sequence: &Sequence) -> Option<u32> {
        if sequence.has_nothing_to_do(self.limits) {
            return Some(0);
        }
        if self.running.len() as u32 >= self.config.running_max {
            return None;
        }
        let findable = sequence.findable(self.limits);
        let reader = sequence.reader();
        let found = self.kv.usable(findable, 0, reader);
        // Room for the first token of answer too: without it the next step would preempt again.
        let with_next = (sequence.len() + 1).min(self.limits.context);
        let hits = &findable[..found as usize];
        let fits = self.kv.fits(hits, self.limits.pages(with_next), reader);
        fits.then_some(found)
    }

    /// Lets waiting sequences run, best rank first, until one does not fit. Returns those that got blocks.
    pub(crate) fn admit(&mut self, events: &mut Vec<Event>) -> Vec<Rank> {
        let mut opened = Vec::new();
        while let Some((rank, sequence)) = self.waiting.first_key_value() {
            let (rank, job) = (*rank, sequence.job);
            let Some(found) = self.admissible(sequence) else { break };
            let mut sequence = self.waiting.remove(&rank).expect("it is the first that waits");
            if sequence.has_nothing_to_do(self.limits) {
                self.ranks.remove(&job);
                announce(&mut sequence, events);
                events.push(finished(&sequence, FinishReason::Length));
            } else {
                self.open(&mut sequence, found, events);
                self.running.insert(rank, sequence);
                opened.push(rank);
            }
        }
        opened
    }

    fn open(&mut self, sequence: &mut Sequence, found: u32, events: &mut Vec<Event>) {
        let pages = self.limits.pages(sequence.len());
        let findable = sequence.findable(self.limits).to_vec();
        let (hits, missing) = findable.split_at(found as usize);
        let reader = sequence.reader();
        self.kv.open(&mut sequence.table, hits, pages, reader);
        sequence.opened(found, self.limits);
        if self.config.tier && !missing.is_empty() {
            sequence.phase = Phase::Lookup {
                asked: missing.len() as u32,
            };
            events.push(Event::Lookup {
                job: sequence.job,
                hashes: missing.to_vec(),
            });
        } else {
            proceed(sequence, self.limits, events);
        }
    }

    /// Lets a sequence that waited for a lower tier go on.
    pub(crate) fn proceed(&mut self, rank: Rank, events: &mut Vec<Event>) {
        let limits = self.limits;
        proceed(self.get_mut(rank), limits, events);
    }

    /// Gives every decode the block it needs, and lists them. Returns how many sequences lost their blocks for it.
    pub(crate) fn plan_decodes(&mut self, runs: &mut Vec<Run>, now_ms: u64) -> u32 {
        let mut preempted = 0;
        let is_decode = |sequence: &&Sequence| sequence.phase == Phase::Compute && !sequence.is_prefilling();
        let ranks: Vec<Rank> = self
            .running
            .values()
            .filter(is_decode)
            .map(|sequence| sequence.rank)
            .collect();
        for rank in ranks {
            while let Some(sequence) = self.running.get_mut(&rank) {
                let pages = self.limits.pages(sequence.len());
                if self.kv.reach(&mut sequence.table, pages, pages) {
                    runs.push(Run::decode(sequence));
                    break;
                }
                self.preempt_worst(now_ms);
                preempted += 1;
            }
        }
        preempted
    }

    /// Sends the computing sequence of the worst rank back to wait. Those that wait for the host keep what was promised.
    fn preempt_worst(&mut self, now_ms: u64) {
        let computing = self
            .running
            .values()
            .rev()
            .find(|sequence| sequence.phase == Phase::Compute);
        let rank = computing.expect("the sequence that needs a block computes").rank;
        let mut sequence = self.running.remove(&rank).expect("it was just found");
        self.kv.close(&mut sequence.table);
        sequence.closed(now_ms);
        self.waiting.insert(rank, sequence);
        self.counters.preemptions += 1;
    }

    /// Lists chunks of prompts within the budget that the decodes left. Returns how many sequences lost their blocks.
    pub(crate) fn plan_prefills(&mut self, runs: &mut Vec<Run>, events: &mut Vec<Event>, now_ms: u64) -> u32 {
        let mut room = Room::beside(runs, &self.config);
        let mut preempted = 0;
        let is_prefill = |sequence: &&Sequence| sequence.phase == Phase::Compute && sequence.is_prefilling();
        let ranks: Vec<Rank> = self
            .running
            .values()
            .filter(is_prefill)
            .map(|sequence| sequence.rank)
            .collect();
        for rank in ranks {
            while self.plan_prefill(rank, &mut room, runs, events) == Planned::NoBlocks && runs.is_empty() {
                // Somebody has to get on.
                self.preempt_worst(now_ms);
                preempted += 1;
            }
        }
        preempted
    }

    fn plan_prefill(&mut self, rank: Rank, room: &mut Room, runs: &mut Vec<Run>, events: &mut Vec<Event>) -> Planned {
        let limits = self.limits;
        let Some(sequence) = self.running.get_mut(&rank) else {
            return Planned::Done;
        };
        sequence.find_more(&mut self.kv, limits);
        if room.computes_for(sequence, limits) {
            return Planned::Done;
        }
        let runnable = ask_features(sequence, limits, events);
        let wanted = room.chunk(sequence, runnable, limits);
        if wanted == 0 {
            return Planned::Done;
        }
        let computed = sequence.computed;
        let covered = self.kv.cover(&mut sequence.table, limits.pages(computed + wanted));
        let coverable = (covered * limits.block_tokens).saturating_sub(computed);
        let tokens = room.chunk(sequence, wanted.min(coverable), limits);
        if tokens == 0 {
            return Planned::NoBlocks;
        }
        announce(sequence, events);
        runs.push(room.take(sequence, tokens, limits));
        Planned::Done
    }

    /// A sequence has computed more: it gives back what no later token reads.
    pub(crate) fn slide(&mut self, rank: Rank) {
        let (sequence, kv) = self.parts(rank);
        kv.slide(&mut sequence.table, sequence.computed);
    }

    /// Proves that blocks and queues are consistent.
    pub(crate) fn check(&self) -> Result<(), String> {
        let tables = self
            .waiting
            .values()
            .chain(self.running.values())
            .map(|sequence| &sequence.table);
        self.kv.check(tables)?;
        if self.ranks.len() != self.waiting.len() + self.running.len() {
            return Err("a job is in no queue or in two".into());
        }
        for sequence in self.running.values() {
            let pages = self.limits.pages(sequence.computed);
            if sequence.computed > sequence.len() || pages > sequence.table.pages() {
                return Err(format!("job {} has more KV than blocks or tokens", sequence.job.0));
            }
            let first_pages = self.kv.first_pages(sequence.reader()).skip(1);
            for (column, first) in sequence.table.trailing.iter().zip(first_pages) {
                if column.first > first || column.len() < pages {
                    return Err(format!("job {} lacks window blocks that it reads", sequence.job.0));
                }
            }
        }
        Ok(())
    }
}

/// What became of a prompt's wish to run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Planned {
    /// It runs, waits, or sits this step out for a good reason.
    Done,
    /// It lacks blocks of a window.
    NoBlocks,
}

/// Tells the host that a job runs, and how much of its prompt was found.
fn announce(sequence: &mut Sequence, events: &mut Vec<Event>) {
    if sequence.announced || sequence.kind == JobKind::Decode {
        return;
    }
    sequence.announced = true;
    events.push(Event::Admitted {
        job: sequence.job,
        cached_tokens: sequence.cached_tokens,
    });
}

/// Asks for the rows of media that are still to be computed. Says how many tokens can run now; if none, the sequence waits.
fn ask_features(sequence: &mut Sequence, limits: Limits, events: &mut Vec<Event>) -> u32 {
    let media = sequence.rows.ask(sequence.computed);
    if !media.is_empty() {
        let job = sequence.job;
        events.push(Event::Features { job, media });
    }
    let runnable = sequence.rows.runnable(sequence.computed, limits);
    if runnable == 0 {
        sequence.phase = Phase::Features;
    }
    runnable
}

/// Announces the pages a `Decode` job waits for; others compute.
fn proceed(sequence: &mut Sequence, limits: Limits, events: &mut Vec<Event>) {
    if sequence.kind != JobKind::Decode || sequence.started {
        sequence.phase = Phase::Compute;
        return;
    }
    let first_page = sequence.computed / limits.block_tokens;
    let end_page = limits.pages(sequence.len());
    sequence.phase = Phase::Receive(Arrivals::new(first_page, end_page));
    events.push(Event::Reserved {
        job: sequence.job,
        first_page,
        end_page,
    });
}

/// The event that ends a whole job.
pub(crate) fn finished(sequence: &Sequence, reason: FinishReason) -> Event {
    Event::Finished {
        job: sequence.job,
        reason,
        usage: sequence.usage(),
    }
}
