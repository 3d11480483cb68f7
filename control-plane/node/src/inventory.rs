//! What this machine has.

use std::{fs, num::NonZero, thread};

use cluster_plan::{Inventory, NodeInventory};

/// The name of the one node of an embedded cluster.
pub(crate) const LOCAL: &str = "local";

/// This machine as the only node.
pub fn local() -> Inventory {
    Inventory { nodes: vec![machine()] }
}

/// This machine.
pub(crate) fn machine() -> NodeInventory {
    NodeInventory::of_cores(LOCAL, cores(), memory_bytes())
}

/// Cores that this process may use.
pub(crate) fn cores() -> u32 {
    thread::available_parallelism().map_or(1, NonZero::get) as u32
}

/// Main memory; where the system does not tell, none, and the plan says that nothing fits.
fn memory_bytes() -> u64 {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = total_of(&meminfo).unwrap_or(0);
    let limits = [
        "/sys/fs/cgroup/memory.max",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
    ];
    let limit = limits
        .iter()
        .filter_map(|path| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok())
        .min();
    limit.map_or(total, |limit| limit.min(total))
}

/// `MemTotal` of /proc/meminfo, in bytes.
fn total_of(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn total_memory_is_read_in_bytes() {
        assert_eq!(
            total_of("MemTotal:       24576 kB\nMemFree: 1 kB\n"),
            Some(24576 * 1024)
        );
        assert_eq!(total_of("MemFree: 1 kB\n"), None);
    }

    #[test]
    fn this_machine_has_cores_and_memory() {
        let node = &local().nodes[0];
        assert!(node.cores > 0 && node.memory_bytes > 0, "{node:?}");
    }
}
