//! Whether roles, nodes, devices and ports fit together.

use std::collections::BTreeMap;

use super::wiring::workers;
use crate::{
    Name, Problem, RoleName, Topology,
    schema::{Parallel, Roles},
    suggest::nearest,
};

/// What shared devices may use in all: the rest is for the driver, libraries and fragmentation.
const FRACTION_MAX: f64 = 0.95;

pub(super) fn node_names_are_unique(topology: &Topology, problems: &mut Vec<Problem>) {
    for (index, node) in topology.nodes.iter().enumerate() {
        if topology.nodes[..index].iter().any(|earlier| earlier.name == node.name) {
            let message = format!("there are two nodes named '{}'", node.name);
            problems.push(Problem::new(
                "node-twice",
                &format!("nodes.{index}.name"),
                message,
                "rename one",
            ));
        }
    }
}

/// Where each role wants to run.
fn wanted_nodes(roles: &Roles) -> impl Iterator<Item = (RoleName, &Name)> {
    let nodes = [
        (
            RoleName::Tokenizer,
            roles.tokenizer.as_ref().and_then(|role| role.node.as_ref()),
        ),
        (
            RoleName::Router,
            roles.router.as_ref().and_then(|role| role.node.as_ref()),
        ),
        (
            RoleName::Encoder,
            roles.encoder.as_ref().and_then(|role| role.node.as_ref()),
        ),
        (
            RoleName::Prefill,
            roles.prefill.as_ref().and_then(|role| role.node.as_ref()),
        ),
        (
            RoleName::Decode,
            roles.decode.as_ref().and_then(|role| role.node.as_ref()),
        ),
        (
            RoleName::Cache,
            roles.cache.as_ref().and_then(|role| role.node.as_ref()),
        ),
    ];
    nodes
        .into_iter()
        .filter_map(|(role, node)| node.map(|node| (role, node)))
}

pub(super) fn nodes_are_declared(topology: &Topology, problems: &mut Vec<Problem>) {
    for (role, name) in wanted_nodes(&topology.roles) {
        if !topology.nodes.iter().any(|node| node.name == *name) {
            let message = format!("{role} wants to run on '{name}', which is not among the nodes");
            let declare = format!("declare it below nodes, as '- name: {name}', or remove this line");
            let help = match nearest(name.as_str(), topology.nodes.iter().map(|node| node.name.as_str())) {
                Some(near) => format!("did you mean '{near}'? Otherwise {declare}"),
                None => declare,
            };
            problems.push(Problem::new(
                "unknown-node",
                &format!("roles.{role}.node"),
                message,
                help,
            ));
        }
    }
}

/// A run of ports that a role's replicas listen on.
struct Ports {
    at: String,
    first: u16,
    count: u32,
}

fn given_ports(roles: &Roles) -> Vec<Ports> {
    let router = roles
        .router
        .iter()
        .map(|router| (RoleName::Router, Some(router.port), router.replicas));
    let encoder = roles
        .encoder
        .iter()
        .map(|encoder| (RoleName::Encoder, encoder.port, encoder.replicas));
    let workers = workers(roles).map(|(role, worker)| (role, worker.port, worker.replicas));
    router
        .chain(encoder)
        .chain(workers)
        .filter_map(|(role, first, count)| {
            first.map(|first| Ports {
                at: format!("roles.{role}.port"),
                first,
                count,
            })
        })
        .collect()
}

pub(super) fn ports_are_unique(topology: &Topology, problems: &mut Vec<Problem>) {
    let ports = given_ports(&topology.roles);
    for (index, late) in ports.iter().enumerate() {
        let last = u32::from(late.first) + late.count - 1;
        if last > u32::from(u16::MAX) {
            let message = format!(
                "{} replicas from port {} on end at {last}, beyond 65535",
                late.count, late.first
            );
            problems.push(Problem::new("port-out-of-range", &late.at, message, "start lower"));
        }
        for early in &ports[..index] {
            let early_last = u32::from(early.first) + early.count - 1;
            let shared = u32::from(late.first.max(early.first));
            if shared <= last.min(early_last) {
                let message = format!("port {shared} is used by {} too", early.at);
                let help = "choose another, or leave it out: ports are allocated unless given";
                problems.push(Problem::new("port-twice", &late.at, message, help));
            }
        }
    }
}

/// What a role says about accelerators.
struct DeviceUse<'a> {
    role: RoleName,
    node: Option<&'a Name>,
    devices: &'a [u32],
    replicas: u32,
    parallel: Parallel,
    fraction: Option<f64>,
}

fn device_uses(roles: &Roles) -> Vec<DeviceUse<'_>> {
    let encoder = roles.encoder.iter().map(|encoder| DeviceUse {
        role: RoleName::Encoder,
        node: encoder.node.as_ref(),
        devices: &encoder.devices,
        replicas: encoder.replicas,
        parallel: encoder.parallel,
        fraction: encoder.memory_fraction,
    });
    let workers = workers(roles).map(|(role, worker)| DeviceUse {
        role,
        node: worker.node.as_ref(),
        devices: &worker.devices,
        replicas: worker.replicas,
        parallel: worker.parallel,
        fraction: worker.memory_fraction,
    });
    encoder.chain(workers).collect()
}

pub(super) fn device_counts_fit(topology: &Topology, problems: &mut Vec<Problem>) {
    for used in device_uses(&topology.roles) {
        let at = format!("roles.{}.devices", used.role);
        let needed = used.replicas * used.parallel.ranks();
        if !used.devices.is_empty() && used.devices.len() != needed as usize {
            let message = format!(
                "{} devices for replicas x ranks = {} x {}",
                used.devices.len(),
                used.replicas,
                used.parallel.ranks()
            );
            problems.push(Problem::new(
                "device-count",
                &at,
                message,
                format!("list {needed} devices, or none"),
            ));
        }
        for (index, device) in used.devices.iter().enumerate() {
            if used.devices[..index].contains(device) {
                let message = format!("device {device} is listed twice");
                problems.push(Problem::new(
                    "device-twice",
                    &format!("{at}.{index}"),
                    message,
                    "list it once",
                ));
            }
        }
    }
}

pub(super) fn shared_devices_add_up(topology: &Topology, problems: &mut Vec<Problem>) {
    let uses = device_uses(&topology.roles);
    let mut users: BTreeMap<(Option<&Name>, u32), Vec<&DeviceUse<'_>>> = BTreeMap::new();
    for used in &uses {
        let mut devices = used.devices.to_vec();
        devices.sort_unstable();
        devices.dedup();
        for device in devices {
            users.entry((used.node, device)).or_default().push(used);
        }
    }
    // Roles share several devices as a rule; one report for each group of roles is enough.
    let mut reported: Vec<Vec<RoleName>> = Vec::new();
    for ((_, device), sharers) in users.into_iter().filter(|(_, sharers)| sharers.len() > 1) {
        let roles: Vec<RoleName> = sharers.iter().map(|used| used.role).collect();
        if reported.contains(&roles) {
            continue;
        }
        report_sharing(device, &sharers, problems);
        reported.push(roles);
    }
}

fn report_sharing(device: u32, sharers: &[&DeviceUse<'_>], problems: &mut Vec<Problem>) {
    let names: Vec<_> = sharers.iter().map(|used| used.role.name()).collect();
    let names = names.join(" and ");
    for used in sharers.iter().filter(|used| used.fraction.is_none()) {
        let message = format!(
            "{names} share device {device}, and {} does not say how much of it is its own",
            used.role
        );
        let help = "add 'memory_fraction: 0.4', such that all fractions add up to at most 0.95";
        problems.push(Problem::new(
            "share-unsaid",
            &format!("roles.{}.memory_fraction", used.role),
            message,
            help,
        ));
    }
    let sum: f64 = sharers.iter().filter_map(|used| used.fraction).sum();
    // Fractions are decimal; their sum in binary may exceed the bound by rounding alone.
    if sum > FRACTION_MAX + 1e-9 {
        let last = sharers.last().expect("a shared device has users");
        let message = format!("{names} share device {device} and want {sum:.2} of its memory together");
        let help = format!("lower their memory_fraction until they add up to at most {FRACTION_MAX}");
        let at = format!("roles.{}.memory_fraction", last.role);
        problems.push(Problem::new("memory-over", &at, message, help));
    }
}

/// Devices that are chosen by number must be there, on the node the role runs on.
pub(super) fn devices_exist(topology: &Topology, problems: &mut Vec<Problem>) {
    for used in device_uses(&topology.roles)
        .iter()
        .filter(|used| !used.devices.is_empty())
    {
        let node = match used.node {
            Some(name) if topology.nodes.iter().all(|node| node.name != *name) => continue, // Reported as such.
            Some(name) => topology.nodes.iter().find(|node| node.name == *name),
            None => topology.nodes.iter().find(|node| node.has_accelerators()),
        };
        let there = node
            .filter(|node| node.has_accelerators())
            .map_or(0, |node| node.count.max(1));
        let Some(index) = used.devices.iter().position(|device| *device >= there) else {
            continue;
        };
        let name = node.map_or("this machine", |node| node.name.as_str());
        let message = format!("device {} of {name}, which has {there}", used.devices[index]);
        let help = match there {
            0 => "remove the devices, or declare a node with accelerators".into(),
            count => format!("use devices 0 to {}, or give the node a larger count", count - 1),
        };
        let at = format!("roles.{}.devices.{index}", used.role);
        problems.push(Problem::new("no-device", &at, message, help));
    }
}
