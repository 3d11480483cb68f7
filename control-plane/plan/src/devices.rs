//! Which accelerators each instance computes on, and what it needs of their memory.

use cluster_messages::{ActorPath, NodeId};
use cluster_topologies::{
    AcceleratorFile, Name, Problem, Resolved, RoleName,
    schema::{Encoder, Parallel, Worker},
};
use serde::{Deserialize, Serialize};

use crate::{Device, NodeInventory, place::Nodes};

/// What an instance needs of one accelerator's memory.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct DeviceRow {
    /// Which.
    pub device: Device,
    /// Its kind.
    pub kind: String,
    /// Who computes on it.
    pub instance: ActorPath,
    /// The share of the memory it may use.
    pub share: f64,
    /// Its rank's part of the weights.
    pub weights_bytes: u64,
    /// Its rank's pages.
    pub kv_bytes: u64,
    /// Scratch space of steps.
    pub activation_bytes: u64,
    /// The accelerator's memory.
    pub capacity_bytes: u64,
}

impl DeviceRow {
    /// All uses.
    pub const fn used_bytes(&self) -> u64 {
        self.weights_bytes + self.kv_bytes + self.activation_bytes
    }

    /// What may be used.
    pub fn limit_bytes(&self) -> u64 {
        (self.capacity_bytes as f64 * self.share) as u64
    }
}

/// The share of an accelerator that a role has when it says nothing and nobody shares it: the rest is for the driver,
/// libraries and fragmentation.
const SHARE_ALONE: f64 = 0.9;

/// What a role says about accelerators.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) role: RoleName,
    pub(crate) replicas: u32,
    pub(crate) node: Option<&'a Name>,
    pub(crate) devices: &'a [u32],
    pub(crate) parallel: Parallel,
    pub(crate) share: f64,
}

impl<'a> Wanted<'a> {
    pub(crate) fn by_worker(role: RoleName, worker: &'a Worker) -> Self {
        Self {
            role,
            replicas: worker.replicas,
            node: worker.node.as_ref(),
            devices: &worker.devices,
            parallel: worker.parallel,
            share: worker.memory_fraction.unwrap_or(SHARE_ALONE),
        }
    }

    pub(crate) fn by_encoder(encoder: &'a Encoder) -> Self {
        Self {
            role: RoleName::Encoder,
            replicas: encoder.replicas,
            node: encoder.node.as_ref(),
            devices: &encoder.devices,
            parallel: encoder.parallel,
            share: encoder.memory_fraction.unwrap_or(SHARE_ALONE),
        }
    }

    /// All roles of a topology that compute.
    pub(crate) fn all(resolved: &'a Resolved) -> Vec<Self> {
        let encoder = resolved.encoder.iter().map(Self::by_encoder);
        encoder
            .chain(resolved.workers().map(|(role, worker)| Self::by_worker(role, worker)))
            .collect()
    }
}

/// The accelerators of a plan's machines.
pub(crate) struct Devices<'a> {
    nodes: Vec<(&'a Name, &'a NodeInventory)>,
    kinds: &'a [AcceleratorFile],
    taken: Vec<Device>,
}

/// The accelerators of one instance, and why these.
pub(crate) type Chosen = (Vec<Device>, String);

impl<'a> Devices<'a> {
    /// Those of `nodes`, without the ones that `wanted` roles name: they are for them.
    pub(crate) fn of(nodes: &Nodes<'a>, wanted: &[Wanted<'_>], kinds: &'a [AcceleratorFile]) -> Self {
        let with_devices = nodes.named().filter(|(_, machine)| !machine.accelerators.is_empty());
        let mut devices = Self {
            nodes: with_devices.collect(),
            kinds,
            taken: Vec::new(),
        };
        for role in wanted {
            if let Some((_, machine)) = devices.node_of(role.node) {
                let named = role.devices.iter().map(|index| device(machine, *index));
                devices.taken.extend(named);
            }
        }
        devices
    }

    fn node_of(&self, name: Option<&Name>) -> Option<(&'a Name, &'a NodeInventory)> {
        let mut nodes = self.nodes.iter();
        nodes.find(|(node, _)| name.is_none_or(|name| *node == name)).copied()
    }

    /// The accelerators of each replica of a role; none when it runs on processor cores.
    pub(crate) fn take(&mut self, wanted: &Wanted<'_>) -> Result<Vec<Chosen>, Problem> {
        let Some((name, machine)) = self.node_of(wanted.node) else {
            return Ok(Vec::new());
        };
        let ranks = wanted.parallel.ranks() as usize;
        if !wanted.devices.is_empty() {
            let reason = format!("on {name}: the topology names its devices");
            let chunks = wanted.devices.chunks(ranks);
            let chosen = chunks.map(|chunk| {
                (
                    chunk.iter().map(|index| device(machine, *index)).collect(),
                    reason.clone(),
                )
            });
            return Ok(chosen.collect());
        }
        (0..wanted.replicas).map(|_| self.find(wanted, ranks)).collect()
    }

    /// Free accelerators for one replica: of one machine if any has enough, else of machines of one link domain.
    fn find(&mut self, wanted: &Wanted<'_>, ranks: usize) -> Result<Chosen, Problem> {
        let candidates: Vec<_> = self
            .nodes
            .iter()
            .filter(|(name, _)| wanted.node.is_none_or(|node| *name == node))
            .map(|(name, machine)| (*name, *machine, self.free(machine)))
            .collect();
        let whole = candidates.iter().find(|(_, _, free)| free.len() >= ranks);
        let (devices, reason) = match whole {
            Some((name, _, free)) => (free[..ranks].to_vec(), format!("on {name}: its first free devices")),
            None => spread(&candidates, ranks, self.kinds).ok_or_else(|| too_few(wanted, &candidates, ranks))?,
        };
        self.taken.extend(devices.iter().cloned());
        Ok((devices, reason))
    }

    fn free(&self, machine: &NodeInventory) -> Vec<Device> {
        let all = (0..machine.accelerators.len()).map(|index| device(machine, index as u32));
        all.filter(|device| !self.taken.contains(device)).collect()
    }
}

type Candidate<'a> = (&'a Name, &'a NodeInventory, Vec<Device>);

fn spread(candidates: &[Candidate<'_>], ranks: usize, kinds: &[AcceleratorFile]) -> Option<Chosen> {
    candidates.iter().find_map(|(_, first, _)| {
        let domain = first.link_domain.as_ref()?;
        let kind = &first.accelerators.first()?.kind;
        let together = candidates.iter().filter(|(_, machine, free)| {
            machine.link_domain.as_ref() == Some(domain) && machine.count_of(kind) > 0 && !free.is_empty()
        });
        let (mut devices, mut names) = (Vec::new(), Vec::new());
        for (name, _, free) in together {
            if devices.len() < ranks {
                devices.extend(free.iter().take(ranks - devices.len()).cloned());
                names.push(name.as_str());
            }
        }
        let carrier = carrier(kind, ranks, kinds)?;
        let reason = format!("on {}: link domain '{domain}', over {carrier}", names.join(" and "));
        (devices.len() == ranks).then_some((devices, reason))
    })
}

/// What `ranks` accelerators of a kind on several machines talk over: a link that leaves the machine, else the network.
fn carrier(kind: &str, ranks: usize, kinds: &[AcceleratorFile]) -> Option<String> {
    let file = kinds.iter().find(|file| file.name.as_str() == kind)?;
    let leaves_machine = file.link.domain_max > file.machine.accelerators;
    if leaves_machine && ranks <= file.link.domain_max as usize {
        return Some(format!("{} at {}/s each", file.link.kind, file.link.bandwidth));
    }
    file.network
        .as_ref()
        .map(|network| format!("the network at {}/s each", network.value))
}

fn too_few(wanted: &Wanted<'_>, candidates: &[Candidate<'_>], ranks: usize) -> Problem {
    let free: Vec<String> = candidates
        .iter()
        .map(|(name, _, free)| format!("{name} has {} free", free.len()))
        .collect();
    let message = format!(
        "no {ranks} accelerators for a replica of {}: {}",
        wanted.role,
        free.join(", ")
    );
    let help = "lower replicas or parallel, share devices by naming them, or give nodes the same link_domain";
    Problem::new("too-few-devices", &format!("roles.{}", wanted.role), message, help)
}

fn device(machine: &NodeInventory, index: u32) -> Device {
    Device {
        node: NodeId(machine.id.0.clone()),
        index,
    }
}

/// Accelerators as people write them: `box devices 0-3`, machine by machine.
pub(crate) fn ranges(devices: &[Device]) -> String {
    let mut texts: Vec<String> = Vec::new();
    for run in devices.chunk_by(|left, right| left.node == right.node && left.index + 1 == right.index) {
        let (first, last) = (run[0].index, run[run.len() - 1].index);
        let numbers = if first == last {
            first.to_string()
        } else {
            format!("{first}-{last}")
        };
        texts.push(format!("{} {numbers}", run[0].node));
    }
    texts.join(", ")
}
