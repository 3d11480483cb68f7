//! The engine's door and the order of one step.
//!
//! A step: hand out what other calls prepared, decide who runs (`scheduler`), export blocks that are about to be
//! overwritten, run the model once, turn rows into tokens (`collect`).

use bytes::Bytes;
use cluster_messages::{BlockHash, ErrorKind, RequestError, SamplePoint};

use crate::{
    Batch, BlockId, Config, Counters, Embedded, Event, Job, JobId, KvClass, KvKind, Model, ModelError, ModelInfo,
    Outputs, Slice, Stepped,
    budget::live_pages,
    door,
    kv::Change,
    page,
    plan::Run,
    sampler::Sampler,
    scheduler::Scheduler,
    sequence::{Limits, Phase, Sequence},
};

/// When a client that was refused for lack of room should try again.
const RETRY_AFTER_MS: u32 = 1000;

/// One worker's engine. See the crate's page for what goes in and out.
pub struct Engine {
    pub(crate) model: Box<dyn Model>,
    pub(crate) info: ModelInfo,
    pub(crate) config: Config,
    pub(crate) scheduler: Scheduler,
    pub(crate) sampler: Sampler,
    pub(crate) outputs: Outputs,
    runs: Vec<Run>,
    arrivals: u64,
}

impl Engine {
    /// An engine around a model, for which it allocates `config.blocks` blocks of each class.
    pub fn new(mut model: Box<dyn Model>, config: Config) -> Result<Engine, ModelError> {
        let info = model.info().clone();
        check_config(&info, &config)?;
        model.allocate(&config.blocks)?;
        let pool_tokens = u64::from(config.blocks[0]) * u64::from(config.block_tokens);
        let limits = Limits {
            block_tokens: config.block_tokens,
            context: u64::from(info.context).min(pool_tokens) as u32,
            prefix_cache: config.prefix_cache,
        };
        Ok(Engine {
            scheduler: Scheduler::new(config.clone(), &info.classes, limits),
            model,
            info,
            config,
            sampler: Sampler::default(),
            outputs: Outputs::default(),
            runs: Vec::new(),
            arrivals: 0,
        })
    }

    /// The model's facts.
    pub fn info(&self) -> &ModelInfo {
        &self.info
    }

    /// The longest sequence it can hold: the model's context, or the whole pool if that is less.
    pub fn context(&self) -> u32 {
        self.scheduler.limits.context
    }

    /// Takes a job, or says what is wrong with it. Nothing runs before the next step.
    pub fn submit(&mut self, job: Job, now_ms: u64) -> Result<(), RequestError> {
        let limits = self.scheduler.limits;
        door::check(&job, self.info.vocabulary, self.info.width, limits)?;
        if self.scheduler.knows(job.id) {
            let message = format!("job {} is in the engine already", job.id.0);
            return Err(RequestError::new(ErrorKind::Internal, message));
        }
        let most = u64::from(self.config.running_max) + u64::from(self.config.waiting_max);
        if self.scheduler.len() as u64 >= most {
            let message = format!("all {most} places of this worker are taken");
            return Err(RequestError::new(ErrorKind::Overloaded, message).retry_after(RETRY_AFTER_MS));
        }
        let table = self.scheduler.kv.table();
        let sequence = Sequence::new(job, self.arrivals, table, self.info.fingerprint, limits, now_ms);
        self.arrivals += 1;
        self.scheduler.enqueue(sequence);
        Ok(())
    }

    /// Ends a job and frees its blocks at once; it has no further events. False if it is not in the engine.
    pub fn abort(&mut self, job: JobId) -> bool {
        self.end(job).is_some()
    }

    pub(crate) fn end(&mut self, job: JobId) -> Option<Sequence> {
        let sequence = self.scheduler.remove(job)?;
        self.model.forget(sequence.seq);
        Some(sequence)
    }

    /// Whether a step would do anything now.
    pub fn has_work(&self) -> bool {
        self.scheduler.has_work() || self.scheduler.kv.has_changes()
    }

    /// Runs one batch and appends what happened to `events`. After an error the engine is of no further use.
    pub fn step(&mut self, now_ms: u64, events: &mut Vec<Event>) -> Result<Stepped, ModelError> {
        self.hand_out(events);
        let mut runs = std::mem::take(&mut self.runs);
        runs.clear();
        let mut preempted = self.scheduler.plan_decodes(&mut runs, now_ms);
        // Blocks that were just taken away are for those who run, not for the next who waits.
        if preempted == 0 {
            for rank in self.scheduler.admit(events) {
                let sequence = self.scheduler.get(rank);
                self.model.begin(sequence.seq, sequence.generation.prompt_len);
            }
        }
        preempted += self.scheduler.plan_prefills(&mut runs, events, now_ms);
        self.publish_changes(events);
        let mut stepped = Stepped {
            preempted,
            ..Stepped::default()
        };
        if !runs.is_empty() {
            self.forward(&runs)?;
            self.count(&runs, &mut stepped);
            self.collect(&runs, events);
            self.publish_changes(events);
        }
        self.runs = runs;
        Ok(stepped)
    }

    /// What `provide` and `start` left for the step to say.
    fn hand_out(&mut self, events: &mut Vec<Event>) {
        let is_due = |phase: &Phase| matches!(phase, Phase::Announce | Phase::Started(_));
        for rank in self.scheduler.in_phase(is_due) {
            let sequence = self.scheduler.get_mut(rank);
            match std::mem::replace(&mut sequence.phase, Phase::Compute) {
                Phase::Started(first) => self.advance(rank, vec![first], events),
                _ => self.scheduler.proceed(rank, events),
            }
        }
    }

    fn forward(&mut self, runs: &[Run]) -> Result<(), ModelError> {
        let classes = self.info.classes.len();
        let sequences: Vec<&Sequence> = runs.iter().map(|run| self.scheduler.get(run.rank)).collect();
        let tables: Vec<&[BlockId]> = sequences.iter().flat_map(|sequence| sequence.table.classes()).collect();
        let width = self.info.width;
        let mut embedded: Vec<Embedded<'_>> = Vec::new();
        let mut embedded_ends = Vec::with_capacity(runs.len());
        for (run, sequence) in runs.iter().zip(&sequences) {
            let end = sequence.computed + run.tokens;
            embedded.extend(sequence.rows.within(sequence.computed, end, width));
            embedded_ends.push(embedded.len());
        }
        let mut slices = Vec::with_capacity(runs.len());
        let mut embedded_start = 0;
        for (index, ((run, sequence), tables)) in runs.iter().zip(&sequences).zip(tables.chunks(classes)).enumerate() {
            let start = sequence.computed;
            assert!(run.tokens > 0, "a run has tokens: job {}", sequence.job.0);
            slices.push(Slice {
                seq: sequence.seq,
                tokens: &sequence.generation.tokens[start as usize..(start + run.tokens) as usize],
                start,
                tables,
                embedded: &embedded[embedded_start..embedded_ends[index]],
                wanted: run.wanted,
            });
            embedded_start = embedded_ends[index];
        }
        self.outputs.clear();
        self.model.forward(&Batch { slices: &slices }, &mut self.outputs)?;
        let wanted: usize = runs.iter().map(|run| run.wanted.rows(run.tokens as usize)).sum();
        match self.outputs.len() {
            rows if rows == wanted => Ok(()),
            rows => Err(ModelError::Failed(format!(
                "the model gave {rows} rows where {wanted} were wanted"
            ))),
        }
    }

    fn count(&mut self, runs: &[Run], stepped: &mut Stepped) {
        let prefills = runs.iter().filter(|run| run.is_prefill);
        stepped.prefill_tokens = prefills.map(|run| run.tokens).sum();
        stepped.ran_tokens = runs.iter().map(|run| run.tokens).sum();
        stepped.sequences = runs.len() as u32;
        stepped.cost_us = self.model.step_cost_us();
        let counters = &mut self.scheduler.counters;
        counters.steps += 1;
        counters.ran_tokens += u64::from(stepped.ran_tokens);
    }

    /// Tells what can be found by hash since the last call, and hands out blocks that the next forward pass overwrites.
    fn publish_changes(&mut self, events: &mut Vec<Event>) {
        for change in self.scheduler.kv.take_changes() {
            match change {
                Change::Stored(hash) => push_stored(events, hash),
                Change::Removed { hash, blocks } => {
                    self.scheduler.counters.evictions += 1;
                    if self.config.tier {
                        let bytes = self.export(blocks);
                        events.push(Event::Evicted { hash, bytes });
                    }
                    push_removed(events, hash);
                }
            }
        }
    }

    /// The bytes of a page, as far as it has blocks.
    pub(crate) fn export(&self, blocks: impl IntoIterator<Item = BlockId>) -> Bytes {
        page::export(self.model.as_ref(), &self.info.classes, blocks).into()
    }

    /// How busy it is.
    pub fn load(&self, now_ms: u64) -> SamplePoint {
        let scheduler = &self.scheduler;
        let pending = scheduler
            .waiting()
            .chain(scheduler.running())
            .map(Sequence::pending_tokens);
        let oldest_ms = scheduler.waiting().map(|sequence| sequence.queued_ms).min();
        SamplePoint {
            running: scheduler.running().count() as u32,
            waiting: scheduler.waiting().count() as u32,
            pending_tokens: pending.sum(),
            blocks_used: scheduler.kv.used(),
            blocks_cached: scheduler.kv.cached(),
            blocks_total: scheduler.kv.total(),
            steps: scheduler.counters.steps,
            oldest_waiting_ms: oldest_ms.map_or(0, |queued_ms| now_ms.saturating_sub(queued_ms) as u32),
        }
    }

    /// Totals since it was made.
    pub fn counters(&self) -> Counters {
        self.scheduler.counters
    }

    /// All blocks that can be found by hash now; what a router gets as a snapshot.
    pub fn held(&self) -> Vec<BlockHash> {
        self.scheduler.kv.held()
    }

    /// Proves the invariants of blocks and queues, at a cost that grows with the pool: for tests.
    ///
    /// Every block is free, held or kept, exactly once; it is held as often as sequences name it; the prefix tree agrees
    /// with the pools; every job is in one queue.
    pub fn check(&self) -> Result<(), String> {
        self.scheduler.check()
    }
}

fn push_stored(events: &mut Vec<Event>, hash: BlockHash) {
    match events.last_mut() {
        Some(Event::Stored(hashes)) => hashes.push(hash),
        _ => events.push(Event::Stored(vec![hash])),
    }
}

fn push_removed(events: &mut Vec<Event>, hash: BlockHash) {
    match events.last_mut() {
        Some(Event::Removed(hashes)) => hashes.push(hash),
        _ => events.push(Event::Removed(vec![hash])),
    }
}

fn check_config(info: &ModelInfo, config: &Config) -> Result<(), ModelError> {
    let refuse = |message: String| Err(ModelError::Failed(message));
    let classes = info.classes.len();
    if config.blocks.len() != classes {
        let given = config.blocks.len();
        return refuse(format!(
            "blocks are given for {given} KV classes, the model has {classes}"
        ));
    }
    if !(1..=page::CLASSES_MAX).contains(&classes) {
        let most = page::CLASSES_MAX;
        return refuse(format!("the model has {classes} KV classes; supported are 1 to {most}"));
    }
    let sizes = [
        ("block_tokens", config.block_tokens),
        ("blocks", config.blocks.iter().copied().min().unwrap_or(0)),
        ("running_max", config.running_max),
        ("step_tokens", config.step_tokens),
    ];
    if let Some((name, _)) = sizes.iter().find(|(_, size)| *size == 0) {
        return refuse(format!("{name} is 0; it must be at least 1"));
    }
    let context = info.context.min(config.blocks[0].saturating_mul(config.block_tokens));
    for (index, (class, blocks)) in info.classes.iter().zip(&config.blocks).enumerate() {
        let checked = check_class(index, class, *blocks, config.block_tokens, context);
        checked.map_err(ModelError::Failed)?;
    }
    Ok(())
}

/// What is wrong with a class, or with its share of the memory: one sequence of `context` tokens must have room.
fn check_class(index: usize, class: &KvClass, blocks: u32, block_tokens: u32, context: u32) -> Result<(), String> {
    let kind = class.kind;
    if class.block_tokens != block_tokens {
        let model = class.block_tokens;
        return Err(format!(
            "KV class {index} has blocks of {model} tokens, the engine is set to {block_tokens}"
        ));
    }
    let least = match kind {
        KvKind::Full if index == 0 => 1,
        KvKind::Full => context.div_ceil(block_tokens),
        KvKind::Window { tokens } if index > 0 && tokens > 0 => {
            live_pages(tokens, block_tokens).min(context.div_ceil(block_tokens))
        }
        _ if index == 0 => return Err(format!("KV class 0 is {kind:?}; it must be Full")),
        _ => {
            return Err(format!(
                "KV class {index} is {kind:?}; only Full and Window are supported yet"
            ));
        }
    };
    if blocks < least {
        return Err(format!(
            "KV class {index} has {blocks} blocks; {kind:?} needs {least} for one sequence of {context} tokens"
        ));
    }
    Ok(())
}
