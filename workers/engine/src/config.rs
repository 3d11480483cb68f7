//! How an engine is set up, and what it says about its work in figures.

/// The sizes of one engine. Chosen by whoever plans the worker; the engine has no defaults of its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// Tokens of a block; must be what the model lays out.
    pub block_tokens: u32,
    /// How many blocks each KV class has, in the model's order of classes.
    pub blocks: Vec<u32>,
    /// Most sequences that hold blocks at once.
    pub running_max: u32,
    /// Most jobs in the engine beyond `running_max`; the next one is refused as overloaded.
    pub waiting_max: u32,
    /// Tokens a step should run: all decodes, and as much of the prompts as fits beside them.
    pub step_tokens: u32,
    /// Whether a lower tier stands below: evicted blocks are handed out, and missing ones are asked for.
    pub tier: bool,
    /// Whether blocks are kept and found again by their hashes.
    pub prefix_cache: bool,
}

/// What one step did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stepped {
    /// Tokens the model ran.
    pub ran_tokens: u32,
    /// Those of them that were prompt (or recomputed after a preemption).
    pub prefill_tokens: u32,
    /// Sequences in the batch.
    pub sequences: u32,
    /// Sequences that lost their blocks to others.
    pub preempted: u32,
    /// Microseconds the step would have taken, for models without weights; a host may sleep that long.
    pub cost_us: u64,
}

impl Stepped {
    /// Whether the model did not run.
    pub const fn is_idle(&self) -> bool {
        self.ran_tokens == 0
    }
}

/// Totals since the engine was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Steps in which the model ran.
    pub steps: u64,
    /// Tokens the model ran.
    pub ran_tokens: u64,
    /// Prompt tokens found instead of computed, over all jobs.
    pub cached_tokens: u64,
    /// Tokens chosen.
    pub chosen_tokens: u64,
    /// Sequences that lost their blocks to others.
    pub preemptions: u64,
    /// Blocks that left the prefix tree.
    pub evictions: u64,
}
