//! What a host tells the engine to do, and what it hears back.

use bytes::Bytes;
use cluster_messages::{BlockHash, FinishReason, Generation, RequestError, TokenLogprobs, TokenOut, Usage};

/// Names a job towards the host, which chooses it; unique among the jobs that have not ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct JobId(pub u64);

/// One sequence's work.
#[derive(Clone, PartialEq, Debug)]
pub struct Job {
    /// The host's name for it.
    pub id: JobId,
    /// What to generate.
    pub generation: Generation,
    /// Which part of it.
    pub kind: JobKind,
}

/// Which part of a generation a job does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JobKind {
    /// All: compute the prompt, then decode to the end.
    Whole,
    /// Compute the prompt and the first token, handing out the pages `first_page..end_page` (numbered from the start of
    /// the sequence) as they are completed.
    Prefill {
        /// First page wanted.
        first_page: u32,
        /// One past the last.
        end_page: u32,
    },
    /// Reserve blocks for the prompt, wait for their pages and for `Engine::start`, then decode to the end.
    Decode,
}

/// What happened. Every job that `submit` accepted ends in exactly one of `Finished`, `Prefilled` or `Failed`, unless it was
/// aborted.
#[derive(Clone, PartialEq, Debug)]
pub enum Event {
    /// A `Whole` or `Prefill` job runs from now on (its blocks are reserved). Once per job, also if it is preempted later.
    Admitted {
        /// Which.
        job: JobId,
        /// Prompt tokens whose pages were found; the same number as in the final usage.
        cached_tokens: u32,
    },
    /// A `Decode` job has its blocks and waits for these pages. The earlier ones it found in its own cache.
    Reserved {
        /// Which.
        job: JobId,
        /// First page wanted.
        first_page: u32,
        /// One past the last.
        end_page: u32,
    },
    /// Pages that could come from a lower tier. The job waits until the host calls `provide`, with what it found.
    Lookup {
        /// Which.
        job: JobId,
        /// The blocks after the job's own cached prefix, in order.
        hashes: Vec<BlockHash>,
    },
    /// A job is about to compute placeholders of these media and needs their rows: the host answers with
    /// `Engine::supply`, in one call or several. Asked again if the job was preempted meanwhile.
    Features {
        /// Which.
        job: JobId,
        /// Indices into the generation's `media`, rising.
        media: Vec<u32>,
    },
    /// A page of a `Prefill` job is complete.
    Page {
        /// Which.
        job: JobId,
        /// Its number in the sequence.
        page: u32,
        /// Its bytes: the block of each KV class that is read behind the prompt. A model with several classes has a byte
        /// before them that says which (bit i for class i).
        bytes: Bytes,
    },
    /// Log-probabilities of the prompt.
    Prompt {
        /// Which.
        job: JobId,
        /// One entry per token; none for the first.
        logprobs: Vec<Option<TokenLogprobs>>,
    },
    /// The next tokens.
    Tokens {
        /// Which.
        job: JobId,
        /// At least one.
        tokens: Vec<TokenOut>,
    },
    /// A `Prefill` job ended well; all its pages were handed out before.
    Prefilled {
        /// Which.
        job: JobId,
        /// The first token.
        first: TokenOut,
        /// Prompt tokens found in the cache.
        cached_tokens: u32,
    },
    /// A `Whole` or `Decode` job ended well.
    Finished {
        /// Which.
        job: JobId,
        /// Why.
        reason: FinishReason,
        /// What it cost.
        usage: Usage,
    },
    /// A job ended badly.
    Failed {
        /// Which.
        job: JobId,
        /// Why.
        error: RequestError,
    },
    /// Blocks that can be found under these hashes from now on.
    Stored(Vec<BlockHash>),
    /// Blocks that cannot be found any longer.
    Removed(Vec<BlockHash>),
    /// A block about to be overwritten, for a lower tier to keep (only when tiers are on).
    Evicted {
        /// Its hash.
        hash: BlockHash,
        /// Its bytes, as in `Page`, of the classes whose blocks were still there.
        bytes: Bytes,
    },
}
