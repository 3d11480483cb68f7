//! Whether everything fits: weights, pages, scratch space and tiers against what a machine has.

use cluster_messages::NodeId;
use cluster_topologies::{ByteSize, Problem};
use serde::{Deserialize, Serialize};

use crate::{Instance, KvRow, ModelFacts, NodeInventory, Settings};

/// What is used of a machine's main memory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MemoryRow {
    /// The machine.
    pub node: NodeId,
    /// Weights, loaded once for all instances of a machine.
    pub weights_bytes: u64,
    /// Pages.
    pub kv_bytes: u64,
    /// Scratch space of steps.
    pub activation_bytes: u64,
    /// Tiers of the cache role.
    pub cache_bytes: u64,
    /// What there is.
    pub capacity_bytes: u64,
}

/// The part of a machine that may be used: the rest is for the system and for what is not counted here.
const USABLE_PERCENT: u64 = 95;

impl MemoryRow {
    /// All uses.
    pub const fn used_bytes(&self) -> u64 {
        self.weights_bytes + self.kv_bytes + self.activation_bytes + self.cache_bytes
    }

    /// What may be used.
    pub const fn limit_bytes(&self) -> u64 {
        self.capacity_bytes / 100 * USABLE_PERCENT
    }
}

/// What the instances need of each machine's main memory.
pub(crate) fn rows<'a>(
    machines: impl Iterator<Item = &'a NodeInventory>,
    instances: &[Instance],
    facts: &ModelFacts,
) -> Vec<MemoryRow> {
    machines
        .map(|machine| {
            let mut row = MemoryRow {
                node: machine.id.clone(),
                weights_bytes: 0,
                kv_bytes: 0,
                activation_bytes: 0,
                cache_bytes: 0,
                capacity_bytes: machine.memory_bytes,
            };
            for instance in instances.iter().filter(|instance| instance.node == machine.id) {
                add(&mut row, instance, facts);
            }
            row
        })
        .collect()
}

fn add(row: &mut MemoryRow, instance: &Instance, facts: &ModelFacts) {
    let on_cores = instance.devices.is_empty();
    match &instance.settings {
        Settings::Tokenizer | Settings::Router { .. } => {}
        Settings::Cache(cache) => row.cache_bytes += cache.host_bytes,
        Settings::Encoder(encoder) => {
            row.cache_bytes += encoder.cache_bytes;
            if on_cores {
                row.weights_bytes = facts.weights_bytes;
                row.activation_bytes += facts.encoder_activation_bytes(1);
            }
        }
        Settings::Worker(worker) if on_cores => {
            let ranks = u64::from(instance.parallel.ranks());
            row.weights_bytes = facts.weights_bytes;
            row.kv_bytes += worker.classes.iter().map(KvRow::bytes).sum::<u64>() * ranks;
            row.activation_bytes += facts.activation_bytes(worker.step_tokens, worker.running_max);
        }
        // Weights, pages and scratch space are in the accelerators' own memory.
        Settings::Worker(_) => {}
    }
}

/// Reports machines that hold less than is asked of them.
pub(crate) fn check(rows: &[MemoryRow], problems: &mut Vec<Problem>) {
    for row in rows.iter().filter(|row| row.used_bytes() > row.limit_bytes()) {
        let message = format!(
            "{} needs {} (weights {}, KV {}, activations {}, cache {}) and may use {} of {}",
            row.node,
            rounded(row.used_bytes()),
            rounded(row.weights_bytes),
            rounded(row.kv_bytes),
            rounded(row.activation_bytes),
            rounded(row.cache_bytes),
            rounded(row.limit_bytes()),
            rounded(row.capacity_bytes),
        );
        let (at, help) = remedy(row);
        problems.push(Problem::new("memory-over", at, message, help));
    }
}

/// Which field to turn to: that of the largest use which can be made smaller.
fn remedy(row: &MemoryRow) -> (&'static str, String) {
    let over = rounded(row.used_bytes() - row.limit_bytes());
    let uses = [
        (
            "kv_cache.memory",
            row.kv_bytes,
            "lower kv_cache.memory or the number of replicas",
        ),
        ("kv_cache.tiers", row.cache_bytes, "lower the host tier"),
        (
            "roles",
            row.activation_bytes,
            "lower step_tokens and running_max of the roles that compute",
        ),
        (
            "model.source",
            row.weights_bytes,
            "use a smaller model or a machine with more memory",
        ),
    ];
    let (at, _, remedy) = uses
        .into_iter()
        .max_by_key(|(_, bytes, _)| *bytes)
        .expect("the list of uses is not empty");
    (at, format!("{over} too much: {remedy}"))
}

/// A size for people: three digits and a unit. Exact sizes print themselves.
pub(crate) fn rounded(bytes: u64) -> String {
    const UNITS: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match UNITS.into_iter().find(|(_, scale)| bytes >= *scale) {
        Some((unit, scale)) => {
            let value = bytes as f64 / scale as f64;
            let digits = usize::from(value < 100.0);
            format!("{value:.digits$} {unit}")
        }
        None => ByteSize(bytes).to_string().replace('B', " B"),
    }
}
