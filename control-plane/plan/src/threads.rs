//! How a machine's cores are shared between the instances that compute on them.

use cluster_messages::NodeId;
use cluster_topologies::{Problem, schema::Worker};

use crate::NodeInventory;

/// An instance that computes: its machine and what its role asks for.
pub(crate) struct Computing<'a> {
    pub(crate) node: NodeId,
    pub(crate) worker: &'a Worker,
    pub(crate) at: String,
    /// Whether it computes on the machine's cores, and not on accelerators.
    pub(crate) on_cores: bool,
    pub(crate) kv_reason: String,
}

/// The threads of each rank of each instance, in order, with the reason. Cores that nobody asks for by number are shared equally, at
/// least one each.
pub(crate) fn share<'a>(
    computing: &[Computing<'_>],
    machines: impl Iterator<Item = &'a NodeInventory> + Clone,
    problems: &mut Vec<Problem>,
) -> Vec<(u32, Option<String>)> {
    let cores_of = |node: &NodeId| {
        machines
            .clone()
            .find(|machine| machine.id == *node)
            .map_or(1, |m| m.cores)
    };
    let mut shares = Vec::with_capacity(computing.len());
    for one in computing {
        if !one.on_cores {
            // One thread for each rank hands work to its accelerator.
            shares.push((1, None));
            continue;
        }
        let ranks = one.worker.parallel.ranks();
        let cores = cores_of(&one.node);
        if let Some(threads) = one.worker.threads {
            if threads > cores {
                let message = format!("{threads} threads; {} has {cores} cores", one.node);
                let help = format!("set it to {cores} or less, or leave it out");
                problems.push(Problem::new(
                    "threads-over",
                    &format!("{}.threads", one.at),
                    message,
                    help,
                ));
            }
            let reason = format!("{}: the topology asks for it", counted(threads));
            shares.push(((threads / ranks).max(1), Some(reason)));
            continue;
        }
        let neighbours = || {
            computing
                .iter()
                .filter(|other| other.on_cores && other.node == one.node)
        };
        let asked: u32 = neighbours().filter_map(|other| other.worker.threads).sum();
        let sharers = neighbours().filter(|other| other.worker.threads.is_none()).count();
        let sharers = u32::try_from(sharers).unwrap_or(u32::MAX);
        let threads = (cores.saturating_sub(asked) / sharers).max(1);
        let reason = match sharers {
            1 => format!("{}: the cores of {} that are free", counted(threads), one.node),
            _ => format!(
                "{}: {} has {cores} cores for {sharers} instances",
                counted(threads),
                one.node
            ),
        };
        shares.push(((threads / ranks).max(1), Some(reason)));
    }
    shares
}

fn counted(threads: u32) -> String {
    let ending = if threads == 1 { "" } else { "s" };
    format!("{threads} thread{ending}")
}
