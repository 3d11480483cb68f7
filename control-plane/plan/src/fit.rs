//! How many pages an instance that computes has, and how long a sequence can be.

use cluster_topologies::{
    ByteSize, Holder, Problem, Resolved, RoleName,
    schema::{Fallback, KvCache, Worker},
};

use crate::{KvClass, KvRow, ModelFacts, devices::Wanted, kv::Pool, memory::rounded};

/// The largest share of an accelerator that a topology may give to a role.
const SHARE_MAX: f64 = 0.95;

/// What an instance of one role holds.
#[derive(Clone, Debug)]
pub(crate) struct Fit {
    pub(crate) rows: Vec<KvRow>,
    pub(crate) context: u32,
    pub(crate) weights_bytes: u64,
    pub(crate) activation_bytes: u64,
    pub(crate) reason: String,
}

impl Fit {
    /// Bytes of pages on a rank.
    pub(crate) fn kv_bytes(&self) -> u64 {
        self.rows.iter().map(KvRow::bytes).sum()
    }
}

/// Fits the state of sequences into main memory (`capacity` none) or into the role's share of accelerators whose memory is
/// at least `capacity`.
pub(crate) fn fit(
    resolved: &Resolved,
    facts: &ModelFacts,
    (role, worker): (RoleName, &Worker),
    capacity: Option<u64>,
    problems: &mut Vec<Problem>,
) -> Fit {
    let kv = &resolved.kv_cache;
    let ranks = u64::from(worker.parallel.ranks());
    let weights_bytes = weights_bytes(resolved, facts, role, worker);
    let activation_bytes = match capacity {
        None => facts.activation_bytes(worker.step_tokens, worker.running_max),
        Some(_) => {
            let own = facts.rank_activation_bytes(worker.step_tokens, worker.running_max, worker.parallel);
            own.max(encoder_activation(resolved, facts, role, worker))
        }
    };
    let memory = match capacity {
        None => kv.memory.unwrap_or(KvCache::MEMORY_ON_CORES).bytes() / ranks,
        Some(capacity) => {
            let wanted = Wanted::by_worker(role, worker);
            let limit = (capacity as f64 * wanted.share) as u64;
            let left = limit.saturating_sub(weights_bytes + activation_bytes);
            if left == 0 {
                problems.push(over(role, worker, capacity, limit, weights_bytes, activation_bytes));
            }
            kv.memory.map_or(left, |memory| left.min(memory.bytes() / ranks))
        }
    };
    let pool = Pool {
        block_tokens: kv.page_tokens,
        dtype: kv.dtype,
        tensor: worker.parallel.tensor,
        running_max: worker.running_max,
        step_tokens: worker.step_tokens,
        prefix_reuse: kv.prefix_reuse,
    };
    let rows = pool.fill(&facts.classes, memory);
    let tokens = tokens(&rows, kv.page_tokens);
    let longest = resolved.model.context.unwrap_or(facts.context);
    if memory > 0 {
        problems.extend(too_small(resolved, facts, memory, tokens, capacity.map(|_| role)));
    }
    Fit {
        context: longest.min(u32::try_from(tokens).unwrap_or(u32::MAX)),
        reason: reason(&rows, resolved, worker, facts, memory, capacity),
        rows,
        weights_bytes,
        activation_bytes,
    }
}

fn tokens(rows: &[KvRow], block_tokens: u32) -> u64 {
    rows.first().map_or(0, |row| u64::from(row.blocks)) * u64::from(block_tokens)
}

/// Whether instances of a role may have to encode media themselves.
pub(crate) fn may_encode(resolved: &Resolved, role: RoleName, worker: &Worker) -> bool {
    let falls_back = resolved
        .encoder
        .as_ref()
        .is_some_and(|encoder| encoder.fallback == Fallback::Local);
    let computes_prompts = role == RoleName::Prefill || worker.folds.contains(&RoleName::Prefill);
    worker.folds.contains(&RoleName::Encoder) || falls_back && computes_prompts
}

fn weights_bytes(resolved: &Resolved, facts: &ModelFacts, role: RoleName, worker: &Worker) -> u64 {
    let own = facts.rank_weights_bytes(worker.parallel, Holder::Language);
    if may_encode(resolved, role, worker) {
        return own + facts.rank_weights_bytes(worker.parallel, Holder::Encoder);
    }
    own
}

fn encoder_activation(resolved: &Resolved, facts: &ModelFacts, role: RoleName, worker: &Worker) -> u64 {
    if may_encode(resolved, role, worker) {
        return facts.encoder_activation_bytes(worker.parallel.tensor);
    }
    0
}

fn over(role: RoleName, worker: &Worker, capacity: u64, limit: u64, weights: u64, activations: u64) -> Problem {
    let would_fit = (weights + activations) as f64 <= capacity as f64 * SHARE_MAX;
    let message = format!(
        "a rank of {role} needs {} (weights {}, activations {}) before any page, and may use {}",
        rounded(weights + activations),
        rounded(weights),
        rounded(activations),
        rounded(limit)
    );
    let (at, help) = if activations > weights {
        ("step_tokens", "lower step_tokens or running_max")
    } else if worker.memory_fraction.is_some() && would_fit {
        (
            "memory_fraction",
            "raise it, spread the model over more ranks, or use another quantization",
        )
    } else {
        (
            "parallel",
            "spread the model over more ranks, or use another quantization",
        )
    };
    Problem::new("memory-over", &format!("roles.{role}.{at}"), message, help)
}

/// A length that was asked for must fit; one that was not is shortened to what fits.
fn too_small(
    resolved: &Resolved,
    facts: &ModelFacts,
    memory: u64,
    tokens: u64,
    on_device: Option<RoleName>,
) -> Option<Problem> {
    let kv = &resolved.kv_cache;
    let asked = resolved.model.context.filter(|longest| tokens < u64::from(*longest));
    if tokens > 0 && asked.is_none() {
        return None;
    }
    let wanted = asked.unwrap_or(kv.page_tokens);
    let bytes_per_token = facts.kv_bytes_per_token(kv.dtype);
    if let Some(role) = on_device {
        let message = format!(
            "{} a rank of {role} has left hold {tokens} tokens; {wanted} are needed",
            rounded(memory)
        );
        let help = "raise its memory_fraction, lower running_max, or set model.context lower";
        return Some(Problem::new("kv-too-small", &format!("roles.{role}"), message, help));
    }
    let pages = wanted.div_ceil(kv.page_tokens);
    let trailing: u64 = 2 * facts.classes.iter().filter(|class| class.is_trailing()).count() as u64;
    // Trailing classes may take half of the memory.
    let needed = u64::from(pages) * u64::from(kv.page_tokens) * bytes_per_token * trailing.clamp(1, 2);
    let size = kv.memory.unwrap_or(KvCache::MEMORY_ON_CORES);
    let message = format!("{size} hold {tokens} tokens of {bytes_per_token} bytes; {wanted} are needed");
    let help = format!("set it to at least {}", ByteSize(needed.next_multiple_of(1 << 20)));
    Some(Problem::new("kv-too-small", "kv_cache.memory", message, help))
}

fn reason(
    rows: &[KvRow],
    resolved: &Resolved,
    worker: &Worker,
    facts: &ModelFacts,
    memory: u64,
    capacity: Option<u64>,
) -> String {
    let cache = &resolved.kv_cache;
    let blocks = rows.first().map_or(0, |row| row.blocks);
    let per_token = facts.kv_bytes_per_token(cache.dtype);
    let size = match facts.classes.len() {
        1 => format!("at {per_token} bytes "),
        classes => format!("in {classes} classes "),
    };
    let of = format!("{} tokens {size}of {}", cache.page_tokens, cache.dtype.name());
    match capacity {
        None => {
            let memory = cache.memory.unwrap_or(KvCache::MEMORY_ON_CORES);
            format!("{blocks} blocks: {memory} hold that many of {of}")
        }
        Some(_) => format!(
            "{blocks} blocks: {} on each of {} ranks hold that many of {of}",
            rounded(memory),
            worker.parallel.ranks()
        ),
    }
}

impl KvClass {
    /// Whether only the end of a sequence is kept.
    pub(crate) const fn is_trailing(&self) -> bool {
        matches!(self.kind, crate::KvKind::Window { .. } | crate::KvKind::Pending)
    }
}
