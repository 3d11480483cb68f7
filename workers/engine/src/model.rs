//! What the engine asks of a model. Real models (`cluster-models`), the scripted and the simulated one stand behind it.

use cluster_messages::Fingerprint;

/// A block of one KV class, an index into the model's storage of that class.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct BlockId(pub u32);

impl BlockId {
    /// Stands in tables for a block that was given back: its positions are never read again.
    pub const NONE: BlockId = BlockId(u32::MAX);
}

/// A sequence in the engine; never reused within one engine's life.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct SeqId(pub u64);

/// How a class of KV state grows with a sequence.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum KvKind {
    /// One entry per token, kept for the whole sequence.
    Full,
    /// One entry per token, of which only the last `tokens` are read.
    Window {
        /// Entries that are read, the query's own included.
        tokens: u32,
    },
    /// One entry per `ratio` tokens.
    Compressed {
        /// Tokens an entry stands for.
        ratio: u32,
    },
    /// A few rows that belong to a sequence and travel with it.
    Pending {
        /// How many.
        rows: u32,
    },
}

/// One class of KV state; layers of a kind share blocks and tables.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KvClass {
    /// How it grows.
    pub kind: KvKind,
    /// Tokens of a block.
    pub block_tokens: u32,
    /// Bytes of a block over all its layers, as exported.
    pub block_bytes: usize,
}

/// What the engine needs to know of a model.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ModelInfo {
    /// Equal means: same tokens for the same input. Covers weights and arithmetic.
    pub fingerprint: Fingerprint,
    /// Equal means: blocks can be moved between the two. Covers classes, data type and order in memory.
    pub layout: Fingerprint,
    /// Numbers of an embedding: of the rows that stand in for media.
    pub width: u32,
    /// Rows of logits have this many entries.
    pub vocabulary: u32,
    /// The longest sequence in tokens.
    pub context: u32,
    /// The classes, in the order of `Slice::tables`. Class 0 is the one that prefix hashes and pages are counted in.
    pub classes: Vec<KvClass>,
}

/// One step's work: some tokens of some sequences.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// At most one slice per sequence.
    pub slices: &'a [Slice<'a>],
}

/// Some consecutive tokens of one sequence. The KV of all earlier positions is in the tables' blocks.
#[derive(Clone, Copy, Debug)]
pub struct Slice<'a> {
    /// Which sequence.
    pub seq: SeqId,
    /// The tokens to run.
    pub tokens: &'a [u32],
    /// The position of `tokens[0]`.
    pub start: u32,
    /// For each class the sequence's blocks in order, enough for `start + tokens.len()` positions; `BlockId::NONE` where a
    /// class no longer keeps what no token of this slice reads.
    pub tables: &'a [&'a [BlockId]],
    /// Rows that replace the embeddings of some of `tokens`: media. By position, not overlapping, within the slice.
    pub embedded: &'a [Embedded<'a>],
    /// Which positions' logits are needed.
    pub wanted: Wanted,
}

/// Rows that replace the embeddings of consecutive tokens.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Embedded<'a> {
    /// The position of the first of them.
    pub first: u32,
    /// `[tokens, width]`.
    pub rows: &'a [f32],
}

/// Which of a slice's positions get a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wanted {
    /// None: a chunk that is not the prompt's last.
    None,
    /// The last.
    Last,
    /// All (prompt log-probabilities, verification of drafts).
    All,
}

impl Wanted {
    /// How many rows a slice of `tokens` tokens gets.
    pub const fn rows(self, tokens: usize) -> usize {
        match self {
            Wanted::None => 0,
            Wanted::Last => 1,
            Wanted::All => tokens,
        }
    }
}

/// What a model says about one wanted position.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Row<'a> {
    /// `[vocabulary]` logits; the sampler chooses.
    Logits(&'a [f32]),
    /// These tokens come next, whatever a sampler would say (the scripted model). Empty: nothing this time.
    Tokens(&'a [u32]),
    /// The answer ends here as if its limit were reached (the scripted model).
    Limit,
    /// This sequence failed; others of the batch did not.
    Failed(&'a str),
}

/// The rows of one step, in the order of the slices and, within a slice, of positions. Reused between steps.
#[derive(Debug, Default)]
pub struct Outputs {
    logits: Vec<f32>,
    tokens: Vec<u32>,
    rows: Vec<Held>,
}

#[derive(Debug)]
enum Held {
    Logits { start: usize, len: usize },
    Tokens { start: usize, len: usize },
    Limit,
    Failed(String),
}

impl Outputs {
    /// Forgets all rows, keeps the memory.
    pub fn clear(&mut self) {
        self.logits.clear();
        self.tokens.clear();
        self.rows.clear();
    }

    /// Adds `count` rows of logits and hands out their memory, `[count, vocabulary]`, to be filled.
    pub fn push_logits(&mut self, count: usize, vocabulary: usize) -> &mut [f32] {
        let start = self.logits.len();
        self.logits.resize(start + count * vocabulary, 0.0);
        self.rows.extend((0..count).map(|i| Held::Logits {
            start: start + i * vocabulary,
            len: vocabulary,
        }));
        &mut self.logits[start..]
    }

    /// Adds a row of given tokens.
    pub fn push_tokens(&mut self, tokens: &[u32]) {
        self.rows.push(Held::Tokens {
            start: self.tokens.len(),
            len: tokens.len(),
        });
        self.tokens.extend_from_slice(tokens);
    }

    /// Adds a row that ends the answer as its limit would.
    pub fn push_limit(&mut self) {
        self.rows.push(Held::Limit);
    }

    /// Adds a row that says the sequence failed.
    pub fn push_failure(&mut self, message: impl Into<String>) {
        self.rows.push(Held::Failed(message.into()));
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Row `index`.
    pub fn row(&self, index: usize) -> Row<'_> {
        match &self.rows[index] {
            Held::Logits { start, len } => Row::Logits(&self.logits[*start..start + len]),
            Held::Tokens { start, len } => Row::Tokens(&self.tokens[*start..start + len]),
            Held::Limit => Row::Limit,
            Held::Failed(message) => Row::Failed(message),
        }
    }
}

/// Why a model cannot go on. The whole worker is lost with it; a failure of one sequence is a `Row::Failed`.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ModelError {
    /// There is not enough memory for what was asked.
    #[error("out of memory: {0}")]
    Memory(String),
    /// An imported page does not fit the layout.
    #[error("page of {got} bytes where {expected} were expected")]
    PageSize {
        /// Bytes of a block.
        expected: usize,
        /// Bytes offered.
        got: usize,
    },
    /// Anything else.
    #[error("{0}")]
    Failed(String),
}

/// A model that can run steps. It owns the memory behind block ids; the engine decides what is in them.
pub trait Model: Send {
    /// Its constant facts.
    fn info(&self) -> &ModelInfo;

    /// Makes storage for `blocks[class]` blocks of each class. Called once, before anything else.
    fn allocate(&mut self, blocks: &[u32]) -> Result<(), ModelError>;

    /// Runs one batch: writes the KV of every token of every slice, and pushes `wanted.rows(tokens.len())` rows per slice.
    ///
    /// The rows of a slice and the KV it writes must not depend, to the last bit, on the other slices of the batch, nor on
    /// how a sequence was cut into slices.
    fn forward(&mut self, batch: &Batch<'_>, out: &mut Outputs) -> Result<(), ModelError>;

    /// Appends the bytes of a block of `class` to `out`, `block_bytes` of them.
    fn export(&self, class: usize, block: BlockId, out: &mut Vec<u8>);

    /// Overwrites a block of `class` with exported bytes.
    fn import(&mut self, class: usize, block: BlockId, bytes: &[u8]) -> Result<(), ModelError>;

    /// Microseconds that the last `forward` would have taken on the machine a model without weights stands for. Zero for a
    /// real model, whose time has passed already.
    fn step_cost_us(&self) -> u64 {
        0
    }

    /// The engine will mention this sequence from now on; `prompt_len` of its tokens are the client's prompt, the others
    /// answer. Said again when it runs again after a preemption.
    fn begin(&mut self, _seq: SeqId, _prompt_len: u32) {}

    /// The engine will not mention this sequence again.
    fn forget(&mut self, _seq: SeqId) {}
}

/// Builds a model again after its worker died. Weights are shared, so that a restart is quick.
pub type ModelFactory = std::sync::Arc<dyn Fn() -> Result<Box<dyn Model>, ModelError> + Send + Sync>;
