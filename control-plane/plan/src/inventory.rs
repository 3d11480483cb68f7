//! What machines there are.

use std::collections::BTreeMap;

use cluster_messages::NodeId;
use cluster_topologies::{Resolved, schema::Node};
use serde::{Deserialize, Serialize};

/// The machines that can host instances.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Inventory {
    /// Each once.
    pub nodes: Vec<NodeInventory>,
}

impl Inventory {
    /// The machines that a topology declares, as if they were there: what `cluster plan` counts with on another machine.
    /// Nodes without accelerators are taken for `local`, the machine at hand.
    pub fn declared(resolved: &Resolved, local: &NodeInventory) -> Self {
        let nodes = resolved.nodes.iter().map(|node| declared(node, resolved, local));
        Self { nodes: nodes.collect() }
    }
}

fn declared(node: &Node, resolved: &Resolved, local: &NodeInventory) -> NodeInventory {
    let kind = resolved.accelerator(&node.accelerator);
    let (cores, memory) = kind.map_or((local.cores, local.memory_bytes), |file| {
        (file.machine.cores, file.machine.memory.bytes())
    });
    let accelerators = kind.into_iter().flat_map(|file| {
        let one = Accelerator {
            kind: file.name.to_string(),
            memory_bytes: file.memory.value.bytes(),
        };
        std::iter::repeat_n(one, node.count.max(1) as usize)
    });
    NodeInventory {
        id: NodeId(node.name.to_string()),
        cores,
        memory_bytes: node.memory.map_or(memory, |memory| memory.bytes()),
        accelerators: accelerators.collect(),
        link_domain: node.link_domain.as_ref().map(ToString::to_string),
        labels: node.labels.clone(),
    }
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
