//! Whether state can move between roles by the links a topology names.

use cluster_messages::Role;
use cluster_topologies::{Problem, Resolved, schema::Carrier};

use crate::{Instance, Inventory, NodeInventory, Passed};

/// Checks both links over all pairs of instances that use them; tells what carries.
pub(crate) fn check(
    resolved: &Resolved,
    instances: &[Instance],
    inventory: &Inventory,
    problems: &mut Vec<Problem>,
) -> Vec<Passed> {
    let links = [
        ("links.kv", "pages", resolved.links.kv, Role::Prefill, Role::Decode),
        (
            "links.features",
            "embeddings",
            resolved.links.features,
            Role::Encoder,
            compute_prompts(resolved),
        ),
    ];
    let mut passed = Vec::new();
    for (at, what, carrier, from, to) in links {
        let of = |role: Role| instances.iter().filter(move |instance| instance.path.role == role);
        let pairs = of(from).flat_map(|sender| of(to).map(move |receiver| (sender, receiver)));
        let mut pairs = pairs.peekable();
        if pairs.peek().is_none() {
            continue;
        }
        match pairs.find_map(|(sender, receiver)| obstacle(carrier, sender, receiver, resolved, inventory)) {
            Some(why) => {
                let message = format!("{} does not move {what} from {from} to {to}: {why}", carrier.name());
                let help = "use 'auto', or 'tcp', which reaches everywhere";
                problems.push(Problem::new("unreachable-link", at, message, help));
            }
            None => passed.push(Passed {
                rule: "link".into(),
                detail: format!("{what} from {from} to {to}: {}", carrier.name()),
            }),
        }
    }
    passed
}

fn compute_prompts(resolved: &Resolved) -> Role {
    if resolved.is_split() {
        Role::Prefill
    } else {
        Role::Decode
    }
}

/// Why `carrier` does not reach from one instance to the other.
fn obstacle(
    carrier: Carrier,
    sender: &Instance,
    receiver: &Instance,
    resolved: &Resolved,
    inventory: &Inventory,
) -> Option<String> {
    match carrier {
        Carrier::Auto | Carrier::Tcp => None,
        Carrier::InProcess | Carrier::SharedMemory => (sender.node != receiver.node).then(|| {
            format!(
                "{} is on {}, {} on {}",
                sender.path, sender.node, receiver.path, receiver.node
            )
        }),
        Carrier::Nccl => {
            let (left, right) = (machine(sender, inventory)?, machine(receiver, inventory)?);
            let (Some(one), Some(other)) = (left.accelerators.first(), right.accelerators.first()) else {
                return Some("it moves memory of accelerators, and there are none".into());
            };
            if one.kind != other.kind {
                return Some(format!(
                    "{} is on {}, {} on {}",
                    sender.path, one.kind, receiver.path, other.kind
                ));
            }
            let file = resolved
                .accelerators
                .iter()
                .find(|file| file.name.as_str() == one.kind)?;
            if !file.is_gpu() {
                return Some(format!("{} is no graphics processor", file.title));
            }
            let is_near = left.id == right.id || left.link_domain.is_some() && left.link_domain == right.link_domain;
            (!is_near && file.network.is_none()).then(|| {
                format!(
                    "{} and {} are of different link domains and have no network",
                    left.id, right.id
                )
            })
        }
    }
}

fn machine<'a>(instance: &Instance, inventory: &'a Inventory) -> Option<&'a NodeInventory> {
    inventory.nodes.iter().find(|machine| machine.id == instance.node)
}
