use std::collections::BTreeSet;

use cluster_messages::Role;
use proptest::prelude::*;

use super::*;

fn instance(ordinal: u32, epoch: u64) -> InstanceRef {
    InstanceRef {
        path: ActorPath::new(Role::Decode, ordinal),
        epoch: Epoch(epoch),
    }
}

fn blocks(numbers: &[u128]) -> Vec<BlockHash> {
    numbers.iter().copied().map(BlockHash).collect()
}

fn stored(instance: InstanceRef, seq: u64, numbers: &[u128]) -> KvEvent {
    KvEvent {
        instance,
        seq,
        kind: KvEventKind::Stored(blocks(numbers)),
    }
}

fn removed(instance: InstanceRef, seq: u64, numbers: &[u128]) -> KvEvent {
    KvEvent {
        instance,
        seq,
        kind: KvEventKind::Removed(blocks(numbers)),
    }
}

fn snapshot(instance: InstanceRef, seq: u64, numbers: &[u128]) -> KvEvent {
    KvEvent {
        instance,
        seq,
        kind: KvEventKind::Snapshot(blocks(numbers)),
    }
}

fn overlap(index: &Index, instance: InstanceRef, numbers: &[u128]) -> u32 {
    index.overlaps(&blocks(numbers)).get(&instance).copied().unwrap_or(0)
}

#[test]
fn overlaps_count_blocks_from_the_start_without_gaps() {
    let (a, b, c) = (instance(0, 1), instance(1, 1), instance(2, 1));
    let mut index = Index::new();
    index.apply(&stored(a, 1, &[1, 2, 3]));
    index.apply(&stored(b, 1, &[1, 3]));
    index.apply(&stored(c, 1, &[2, 3]));
    let overlaps = index.overlaps(&blocks(&[1, 2, 3, 4]));
    assert_eq!(overlaps.into_iter().collect::<Vec<_>>(), [(a, 3), (b, 1)]);
    assert!(index.overlaps(&[]).is_empty());
}

#[test]
fn events_in_order_are_applied() {
    let a = instance(0, 1);
    let mut index = Index::new();
    assert_eq!(index.apply(&stored(a, 1, &[1, 2])), Applied::Applied);
    assert_eq!(index.apply(&removed(a, 2, &[2])), Applied::Applied);
    assert_eq!(overlap(&index, a, &[1, 2]), 1);
    assert_eq!(index.checksum(a), (1, 1));
}

#[test]
fn repeated_events_are_stale() {
    let a = instance(0, 1);
    let mut index = Index::new();
    index.apply(&stored(a, 1, &[1]));
    index.apply(&removed(a, 2, &[1]));
    assert_eq!(index.apply(&stored(a, 1, &[1])), Applied::Stale);
    assert!(index.is_empty());
}

#[test]
fn events_out_of_order_wait_for_the_missing_one() {
    let a = instance(0, 1);
    let mut index = Index::new();
    index.apply(&stored(a, 1, &[1]));
    assert_eq!(index.apply(&removed(a, 4, &[2])), Applied::Gap { expected: 2 });
    assert_eq!(index.apply(&stored(a, 3, &[3])), Applied::Gap { expected: 2 });
    assert_eq!(index.missing(a), Some(2));
    assert_eq!(index.apply(&stored(a, 2, &[2])), Applied::Applied);
    assert_eq!(index.missing(a), None);
    assert_eq!(index.checksum(a), (2, 1 ^ 3));
}

#[test]
fn a_snapshot_closes_a_gap_and_later_events_that_waited_follow_it() {
    let a = instance(0, 1);
    let mut index = Index::new();
    index.apply(&stored(a, 1, &[1]));
    index.apply(&stored(a, 3, &[3]));
    index.apply(&stored(a, 5, &[5]));
    assert_eq!(index.apply(&snapshot(a, 4, &[2, 3, 4])), Applied::Applied);
    assert_eq!(index.checksum(a), (4, 2 ^ 3 ^ 4 ^ 5));
    assert_eq!(index.apply(&snapshot(a, 4, &[9])), Applied::Stale);
}

#[test]
fn a_router_that_starts_late_needs_a_snapshot() {
    let a = instance(0, 7);
    let mut index = Index::new();
    assert_eq!(index.apply(&stored(a, 41, &[1])), Applied::Gap { expected: 1 });
    assert!(index.is_empty());
    assert_eq!(index.apply(&snapshot(a, 40, &[2])), Applied::Applied);
    assert_eq!(index.checksum(a), (2, 1 ^ 2));
}

#[test]
fn a_new_life_clears_the_old_one_at_once() {
    let (old, new) = (instance(0, 1), instance(0, 2));
    let mut index = Index::new();
    index.apply(&stored(old, 1, &[1, 2]));
    assert_eq!(index.apply(&stored(new, 1, &[5])), Applied::Applied);
    assert_eq!(index.overlaps(&blocks(&[1])).len(), 0);
    assert_eq!(index.apply(&snapshot(old, 9, &[1])), Applied::Stale);
    assert_eq!((index.checksum(old), index.checksum(new)), ((0, 0), (1, 5)));
}

#[test]
fn echoes_of_a_forgotten_life_change_nothing_and_the_next_life_does() {
    let (old, new) = (instance(0, 1), instance(0, 2));
    let mut index = Index::new();
    index.apply(&stored(old, 1, &[1]));
    index.forget(old);
    assert!(index.is_empty());
    assert_eq!(index.apply(&snapshot(old, 5, &[1])), Applied::Stale);
    assert_eq!(index.apply(&stored(new, 1, &[1])), Applied::Applied);
    index.forget(old);
    assert_eq!(
        overlap(&index, new, &[1]),
        1,
        "an old life's end says nothing about the new one"
    );
}

#[test]
fn early_events_are_bounded() {
    let a = instance(0, 1);
    let mut index = Index::new();
    let last = EARLY_EVENTS_MAX as u64 + 500;
    for seq in 2..=last {
        index.apply(&stored(a, seq, &[u128::from(seq)]));
    }
    let held = &index.instances[&a.path];
    assert_eq!(held.early.len(), EARLY_EVENTS_MAX);
    // The newest were kept: a snapshot of shortly before the end is enough.
    assert_eq!(index.apply(&snapshot(a, last - 3, &[1])), Applied::Applied);
    assert_eq!(index.checksum(a).0, 4);
}

/// What really happens at one instance: its blocks, and the events it published.
#[derive(Clone, Debug, Default)]
struct Truth {
    epoch: u64,
    seq: u64,
    held: BTreeSet<u128>,
}

impl Truth {
    fn reference(&self, ordinal: u32) -> InstanceRef {
        instance(ordinal, self.epoch)
    }

    fn snapshot(&self, ordinal: u32) -> KvEvent {
        let held: Vec<u128> = self.held.iter().copied().collect();
        snapshot(self.reference(ordinal), self.seq, &held)
    }

    fn store(&mut self, ordinal: u32, block: u128) -> KvEvent {
        self.seq += 1;
        self.held.insert(block);
        stored(self.reference(ordinal), self.seq, &[block])
    }

    fn remove(&mut self, ordinal: u32, block: u128) -> KvEvent {
        self.seq += 1;
        self.held.remove(&block);
        removed(self.reference(ordinal), self.seq, &[block])
    }

    fn restart(&mut self) {
        *self = Self {
            epoch: self.epoch + 1,
            ..Self::default()
        };
    }
}

/// One thing that happens to one of three instances.
#[derive(Clone, Copy, Debug)]
enum Happening {
    Store(u128),
    Remove(u128),
    Restart,
}

/// What the network does with an event.
#[derive(Clone, Copy, Debug)]
enum Delivery {
    Good,
    Lost,
    Twice,
    /// After this many further events.
    Late(usize),
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        6 => (1u128..12).prop_map(Happening::Store),
        3 => (1u128..12).prop_map(Happening::Remove),
        1 => Just(Happening::Restart),
    ]
}

fn delivery() -> impl Strategy<Value = Delivery> {
    prop_oneof![
        6 => Just(Delivery::Good),
        1 => Just(Delivery::Lost),
        1 => Just(Delivery::Twice),
        2 => (1usize..6).prop_map(Delivery::Late),
    ]
}

/// The network: what arrives after each event.
fn arrivals(late: &mut Vec<(usize, KvEvent)>, event: KvEvent, delivery: Delivery) -> Vec<KvEvent> {
    let mut arriving = match delivery {
        Delivery::Good => vec![event],
        Delivery::Lost => Vec::new(),
        Delivery::Twice => vec![event.clone(), event],
        Delivery::Late(after) => {
            late.push((after + 1, event));
            Vec::new()
        }
    };
    late.iter_mut().for_each(|(after, _)| *after -= 1);
    arriving.extend(late.extract_if(.., |(after, _)| *after == 0).map(|(_, event)| event));
    arriving
}

fn assert_equal(index: &Index, truths: &[Truth]) {
    let mut all = BTreeSet::new();
    for (ordinal, truth) in (0..).zip(truths) {
        let sum = truth.held.iter().fold(0, |sum, block| sum ^ block);
        assert_eq!(
            index.checksum(truth.reference(ordinal)),
            (truth.held.len(), sum),
            "decode.{ordinal}"
        );
        all.extend(truth.held.iter().copied());
        for block in 1u128..12 {
            let expected = u32::from(truth.held.contains(&block));
            assert_eq!(overlap(index, truth.reference(ordinal), &[block]), expected);
        }
    }
    assert_eq!(index.len(), all.len(), "blocks that nobody holds are forgotten");
}

proptest! {
    /// Whatever is lost, repeated or late: once each instance's snapshot has arrived, the index is the truth.
    #[test]
    fn snapshots_heal_every_disturbance(
        story in prop::collection::vec((0u32..3, happening(), delivery()), 0..200),
        asks_at_gaps in any::<bool>(),
    ) {
        let mut index = Index::new();
        let mut truths = vec![Truth::default(); 3];
        let mut late = Vec::new();
        for (ordinal, happening, delivery) in story {
            let truth = &mut truths[ordinal as usize];
            let event = match happening {
                Happening::Store(block) => truth.store(ordinal, block),
                Happening::Remove(block) => truth.remove(ordinal, block),
                Happening::Restart => {
                    truth.restart();
                    truth.snapshot(ordinal)
                }
            };
            for event in arrivals(&mut late, event, delivery) {
                let applied = index.apply(&event);
                let asks = asks_at_gaps && matches!(applied, Applied::Gap { .. });
                let origin = event.instance.path.ordinal;
                if asks {
                    index.apply(&truths[origin as usize].snapshot(origin));
                }
            }
        }
        for (ordinal, truth) in (0..).zip(&truths) {
            index.apply(&truth.snapshot(ordinal));
        }
        assert_equal(&index, &truths);
        // What still arrives late is known already.
        for (_, event) in late {
            index.apply(&event);
        }
        assert_equal(&index, &truths);
    }

    /// Reordering alone needs no snapshot.
    #[test]
    fn any_order_of_all_events_gives_the_truth(
        changes in prop::collection::vec((any::<bool>(), 1u128..12), 1..60),
        order in any::<prop::sample::Index>(),
        swaps in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 0..60),
    ) {
        let mut truth = Truth { epoch: 1, ..Truth::default() };
        let mut events: Vec<KvEvent> = changes
            .into_iter()
            .map(|(is_store, block)| if is_store { truth.store(0, block) } else { truth.remove(0, block) })
            .collect();
        let middle = order.index(events.len());
        events.rotate_left(middle);
        for (left, right) in swaps {
            let (left, right) = (left.index(events.len()), right.index(events.len()));
            events.swap(left, right);
        }
        let mut index = Index::new();
        let mut last = Applied::Stale;
        for event in &events {
            last = index.apply(event);
        }
        prop_assert_eq!(last, Applied::Applied);
        assert_equal(&index, &[truth]);
    }

    /// Overlaps are what counting by hand gives.
    #[test]
    fn overlaps_equal_counting(
        held in prop::collection::vec(prop::collection::btree_set(1u128..10, 0..10), 1..5),
        asked in prop::collection::vec(1u128..10, 0..10),
    ) {
        let mut index = Index::new();
        for (ordinal, blocks) in (0..).zip(&held) {
            let blocks: Vec<u128> = blocks.iter().copied().collect();
            index.apply(&snapshot(instance(ordinal, 1), 1, &blocks));
        }
        for (ordinal, blocks) in (0..).zip(&held) {
            let expected = asked.iter().take_while(|block| blocks.contains(block)).count();
            prop_assert_eq!(overlap(&index, instance(ordinal, 1), &asked) as usize, expected);
        }
    }
}
