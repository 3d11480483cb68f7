//! Which machine each declared node is, and which node each instance runs on.

use std::collections::BTreeMap;

use cluster_messages::{ActorPath, NodeId};
use cluster_topologies::{Name, Problem, Resolved, schema::Node};

use crate::{Device, Inventory, NodeInventory, Plan};

/// The declared nodes with the machines found for them.
pub(crate) struct Nodes<'a> {
    found: Vec<(&'a Name, &'a NodeInventory)>,
    /// Instances placed so far, by machine.
    placed: BTreeMap<&'a NodeId, u32>,
}

impl<'a> Nodes<'a> {
    /// Finds a machine for each declared node. A machine of the node's name comes first, then those of the inventory in
    /// order; none is taken twice.
    pub(crate) fn find(resolved: &'a Resolved, inventory: &'a Inventory, problems: &mut Vec<Problem>) -> Self {
        let mut found: Vec<(&Name, &NodeInventory)> = Vec::new();
        for (index, node) in resolved.nodes.iter().enumerate() {
            let is_free = |machine: &&NodeInventory| !found.iter().any(|(_, taken)| taken.id == machine.id);
            let mut free: Vec<_> = inventory.nodes.iter().filter(is_free).collect();
            free.sort_by_key(|machine| machine.id.0 != node.name.as_str());
            match free.iter().find(|machine| lacks(machine, node).is_none()) {
                Some(machine) => found.push((&node.name, machine)),
                None => problems.push(no_machine(index, node, &free)),
            }
        }
        Self {
            found,
            placed: BTreeMap::new(),
        }
    }

    /// The machines in use.
    pub(crate) fn machines(&self) -> impl Iterator<Item = &'a NodeInventory> {
        self.found.iter().map(|(_, machine)| *machine)
    }

    /// The same with the names of their nodes.
    pub(crate) fn named(&self) -> impl Iterator<Item = (&'a Name, &'a NodeInventory)> {
        self.found.iter().copied()
    }

    /// Kind and memory of an accelerator.
    pub(crate) fn accelerator(&self, device: &Device) -> Option<(&'a str, u64)> {
        let machine = self.machines().find(|machine| machine.id == device.node)?;
        let accelerator = machine.accelerators.get(device.index as usize)?;
        Some((accelerator.kind.as_str(), accelerator.memory_bytes))
    }

    /// Counts an instance that was placed by its devices.
    pub(crate) fn count(&mut self, id: &NodeId) {
        let machine = self.machines().find(|machine| machine.id == *id);
        if let Some(machine) = machine {
            *self.placed.entry(&machine.id).or_default() += 1;
        }
    }

    /// Chooses where `path` runs, and says why: the node it asks for, else where the previous plan had it, else the
    /// node with the fewest instances.
    pub(crate) fn choose(
        &mut self,
        path: ActorPath,
        wanted: Option<&Name>,
        previous: Option<&Plan>,
    ) -> Option<(NodeId, String)> {
        let before = previous
            .and_then(|plan| plan.instance(path))
            .map(|instance| &instance.node);
        let named = |name: &Name| {
            self.found
                .iter()
                .find(|(node, _)| *node == name)
                .map(|(_, machine)| *machine)
        };
        let (machine, reason) = if let Some(name) = wanted {
            (named(name)?, format!("on {name}: the topology asks for it"))
        } else if let Some(machine) = self.machines().find(|machine| Some(&machine.id) == before) {
            (machine, format!("on {}: it runs there already", machine.id))
        } else {
            let count = |machine: &&NodeInventory| self.placed.get(&machine.id).copied().unwrap_or(0);
            let machine = self.machines().min_by_key(count)?;
            (machine, self.least_placed_reason(machine))
        };
        *self.placed.entry(&machine.id).or_default() += 1;
        Some((machine.id.clone(), reason))
    }

    fn least_placed_reason(&self, machine: &NodeInventory) -> String {
        match self.found.as_slice() {
            [_] => format!("on {}: the only node", machine.id),
            nodes => format!("on {}: fewest instances of {} nodes", machine.id, nodes.len()),
        }
    }
}

/// What a machine lacks to be the declared node.
fn lacks(machine: &NodeInventory, node: &Node) -> Option<String> {
    let kind = node.accelerator.as_str();
    if kind != "cpu" {
        let count = machine.count_of(kind);
        if count < node.count.max(1) {
            return Some(format!("has {count} x {kind}"));
        }
    }
    if node
        .link_domain
        .as_ref()
        .is_some_and(|domain| machine.link_domain.as_deref() != Some(domain.as_str()))
    {
        return Some("is in another link domain".into());
    }
    let missing = node
        .labels
        .iter()
        .find(|(key, value)| machine.labels.get(*key) != Some(value));
    missing.map(|(key, value)| format!("is not labelled {key}={value}"))
}

fn no_machine(index: usize, node: &Node, free: &[&NodeInventory]) -> Problem {
    let refused: Vec<_> = free
        .iter()
        .filter_map(|machine| lacks(machine, node).map(|lack| format!("{} {lack}", machine.id)))
        .collect();
    let why = if refused.is_empty() {
        "every machine is taken".into()
    } else {
        refused.join(", ")
    };
    let message = format!("no machine can be node '{}': {why}", node.name);
    let help = "join a machine that has what the node declares, or lower what it declares";
    Problem::new("no-machine", &format!("nodes.{index}"), message, help)
}
