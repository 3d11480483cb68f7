//! What a decision and an event cost: `cargo run --release -p cluster-routing --example cost`.
//!
//! Sketch: a decision looks up each block of the prompt once and compares lists of holders; an event inserts its blocks into
//! two hash tables. Measured on a busy Zen 5 with 2 vCPUs, every instance holding the whole prompt:
//! 0.6 us a decision for 8 instances and 32 blocks, 6 us for 8 and 512, 27 us for 64 and 512; 0.2 to 0.4 us an event.
#![expect(clippy::print_stdout, reason = "an example that prints a table")]

use std::time::Instant;

use cluster_messages::{
    ActorPath, BlockHash, Capacity, Deadline, Epoch, Fingerprint, Header, InstanceRef, KvEvent, KvEventKind, NodeId,
    Registration, RequestId, Role, Route, TraceContext, blocks,
};
use cluster_routing::{Index, Policy, PolicyState, View, choose};

const ROUNDS: u32 = 2000;
const BLOCKS_HELD: u32 = 20_000;

fn instance(ordinal: u32) -> InstanceRef {
    InstanceRef {
        path: ActorPath::new(Role::Decode, ordinal),
        epoch: Epoch(1),
    }
}

fn registration(instance: InstanceRef) -> Registration {
    Registration {
        instance,
        node: NodeId("local".into()),
        generation: 1,
        model: Fingerprint(1),
        layout: Fingerprint(1),
        capacity: Capacity {
            requests: 1_000_000,
            blocks: BLOCKS_HELD,
            block_tokens: 16,
            context: 1 << 20,
        },
        folds: vec![Role::Prefill],
        needs: Vec::new(),
        addresses: Vec::new(),
    }
}

/// `count` blocks of a prompt that starts with `seed`.
fn chain(seed: u32, count: u32) -> Vec<BlockHash> {
    let tokens: Vec<u32> = (0..count * 16).map(|position| seed ^ position).collect();
    blocks::chain(blocks::root(Fingerprint(1), ""), &tokens, &[], 16)
}

fn route(blocks: Vec<BlockHash>) -> Route {
    Route {
        media: Vec::new(),
        header: Header {
            request: RequestId(1),
            deadline: Deadline(1000),
            trace: TraceContext::default(),
        },
        prompt_tokens: blocks.len() as u32 * 16 + 1,
        blocks,
        exclude: Vec::new(),
    }
}

fn main() {
    let held = chain(1, BLOCKS_HELD);
    for (instances, prompt_blocks) in [(1, 32), (8, 32), (8, 512), (64, 512)] {
        let mut view = View::new();
        let mut index = Index::new();
        let started = Instant::now();
        for ordinal in 0..instances {
            view.register(registration(instance(ordinal)));
            for (seq, block) in (1..).zip(&held) {
                let kind = KvEventKind::Stored(vec![*block]);
                index.apply(&KvEvent {
                    instance: instance(ordinal),
                    seq,
                    kind,
                });
            }
        }
        let event_ns = started.elapsed().as_nanos() / u128::from(instances * BLOCKS_HELD);
        let route = route(held[..prompt_blocks].to_vec());
        let mut state = PolicyState::default();
        let started = Instant::now();
        for ticket in 0..ROUNDS {
            let decision = choose(&route, &view, &index, Policy::kv_aware(), &mut state).expect("instances are there");
            view.begin(ticket.into(), &route, &decision);
            view.end(ticket.into());
        }
        let decision_us = started.elapsed().as_secs_f64() * 1e6 / f64::from(ROUNDS);
        println!(
            "{instances:>3} instances, {prompt_blocks:>4} blocks: {decision_us:>7.2} us a decision, {event_ns:>5} ns an event"
        );
    }
}
