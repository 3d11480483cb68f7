//! What machines there are.

use std::collections::BTreeMap;

use cluster_messages::NodeId;
use serde::{Deserialize, Serialize};

/// The machines that can host instances.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Inventory {
    /// Each once.
    pub nodes: Vec<NodeInventory>,
}

/// One machine.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NodeInventory {
    /// Its name in the cluster.
    pub id: NodeId,
    /// Processor cores that may be used.
    pub cores: u32,
    /// Main memory that may be used.
    pub memory_bytes: u64,
    /// Its accelerators, by number.
    pub accelerators: Vec<Accelerator>,
    /// Machines of the same domain reach each other's accelerators directly.
    pub link_domain: Option<String>,
    /// What it is labelled with.
    pub labels: BTreeMap<String, String>,
}

/// One accelerator.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Accelerator {
    /// Its kind, such as `b300`.
    pub kind: String,
    /// Its own memory.
    pub memory_bytes: u64,
}

impl NodeInventory {
    /// A machine without accelerators.
    pub fn of_cores(id: impl Into<String>, cores: u32, memory_bytes: u64) -> Self {
        Self {
            id: NodeId(id.into()),
            cores,
            memory_bytes,
            accelerators: Vec::new(),
            link_domain: None,
            labels: BTreeMap::new(),
        }
    }

    /// How many accelerators of `kind` it has.
    pub fn count_of(&self, kind: &str) -> u32 {
        let count = self
            .accelerators
            .iter()
            .filter(|accelerator| accelerator.kind == kind)
            .count();
        u32::try_from(count).unwrap_or(u32::MAX)
    }
}
