//! The suite of [`Discovery`].

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use cluster_messages::{ActorPath, Capacity, Epoch, Fingerprint, InstanceRef, NodeId, Registration, Role};

use super::soon;
use crate::discovery::{Change, Discovery, DiscoveryError, Lease, Watch};

type Members = [Arc<dyn Discovery>; 2];

/// Short, so that a check of expiry against a real server ends soon.
const TTL: Duration = Duration::from_secs(2);

/// Runs all checks of the registry. `make` gives two members of a fresh world.
pub async fn discovery(make: impl AsyncFn() -> Members) {
    a_watch_begins_with_what_is_there(make().await).await;
    watchers_hear_every_change_in_order(make().await).await;
    only_newer_lives_register(make().await).await;
    issued_epochs_are_new_everywhere(make().await).await;
    a_later_life_replaces_the_one_before(make().await).await;
    a_lease_covers_one_life(make().await).await;
    ended_leases_take_their_registration_with_them(make().await).await;
    a_slow_watcher_ends_with_the_truth(make().await).await;
}

fn instance(ordinal: u32, epoch: u64) -> InstanceRef {
    InstanceRef {
        path: ActorPath::new(Role::Decode, ordinal),
        epoch: Epoch(epoch),
    }
}

fn registration(instance: InstanceRef, blocks: u32) -> Registration {
    Registration {
        instance,
        node: NodeId("node".into()),
        generation: 1,
        model: Fingerprint(1),
        layout: Fingerprint(2),
        capacity: Capacity {
            blocks,
            ..Capacity::default()
        },
        folds: vec![Role::Prefill],
        needs: vec![vec![Role::Router, Role::Tokenizer]],
        addresses: vec!["10.0.0.1:4000".into()],
    }
}

async fn register(member: &Arc<dyn Discovery>, instance: InstanceRef, blocks: u32) -> Lease {
    let registered = soon(member.register(registration(instance, blocks), TTL)).await;
    registered.expect("a newer life is registered")
}

async fn watch(member: &Arc<dyn Discovery>) -> Watch {
    soon(member.watch()).await.expect("the store is there")
}

async fn next(watch: &mut Watch) -> Change {
    soon(watch.next()).await.expect("the store stays")
}

/// What a watcher believes.
#[derive(Default)]
struct View(BTreeMap<ActorPath, Registration>);

impl View {
    fn apply(&mut self, change: Change) {
        match change {
            Change::Resync(all) => self.0 = all.into_iter().map(|one| (one.instance.path, one)).collect(),
            Change::Put(one) => drop(self.0.insert(one.instance.path, one)),
            Change::Gone(gone) => {
                if self.0.get(&gone.path).is_some_and(|one| one.instance == gone) {
                    self.0.remove(&gone.path);
                }
            }
        }
    }

    /// Follows `watch` until exactly these registrations are believed to be there.
    async fn until(&mut self, watch: &mut Watch, expected: &[Registration]) {
        while !self.0.values().eq(expected) {
            self.apply(next(watch).await);
        }
    }
}

async fn a_watch_begins_with_what_is_there([here, there]: Members) {
    assert_eq!(next(&mut watch(&here).await).await, Change::Resync(Vec::new()));
    let _one = register(&here, instance(1, 1), 10).await;
    let _zero = register(&there, instance(0, 1), 20).await;
    let all = vec![registration(instance(0, 1), 20), registration(instance(1, 1), 10)];
    for member in [&here, &there] {
        assert_eq!(next(&mut watch(member).await).await, Change::Resync(all.clone()));
    }
}

async fn watchers_hear_every_change_in_order([here, there]: Members) {
    let mut changes = watch(&there).await;
    let lease = register(&here, instance(0, 1), 1).await;
    for blocks in 2..6 {
        let updated = soon(lease.update(registration(instance(0, 1), blocks))).await;
        updated.expect("the lease lives");
    }
    soon(lease.revoke()).await;
    assert_eq!(next(&mut changes).await, Change::Resync(Vec::new()));
    for blocks in 1..6 {
        assert_eq!(
            next(&mut changes).await,
            Change::Put(registration(instance(0, 1), blocks))
        );
    }
    assert_eq!(next(&mut changes).await, Change::Gone(instance(0, 1)));
}

async fn only_newer_lives_register([here, there]: Members) {
    let lease = register(&here, instance(0, 5), 1).await;
    let refused = async |member: &Arc<dyn Discovery>, epoch| {
        let tried = soon(member.register(registration(instance(0, epoch), 1), TTL)).await;
        let stale = DiscoveryError::Stale {
            instance: instance(0, epoch),
            known: Epoch(5),
        };
        assert_eq!(tried.map(|lease| lease.instance()), Err(stale));
    };
    refused(&here, 5).await;
    refused(&there, 4).await;
    soon(lease.revoke()).await;
    refused(&here, 5).await;
    refused(&there, 5).await;
    let _other_path = register(&there, instance(1, 1), 1).await;
    let _newer = register(&there, instance(0, 6), 1).await;
}

async fn issued_epochs_are_new_everywhere([here, there]: Members) {
    let path = instance(0, 0).path;
    let _lease = register(&here, instance(0, 7), 1).await;
    let mut issued = BTreeSet::new();
    for _ in 0..10 {
        let (one, other) = soon(async { tokio::join!(here.next_epoch(path), there.next_epoch(path)) }).await;
        for epoch in [one, other] {
            let epoch = epoch.expect("the store is there");
            assert!(epoch > Epoch(7), "{epoch:?} was issued although 7 is registered");
            assert!(issued.insert(epoch), "{epoch:?} was issued twice");
        }
    }
    let latest = *issued.last().expect("twenty were issued");
    let _newest = register(&there, instance(0, latest.0), 1).await;
    let next = soon(here.next_epoch(path)).await.expect("the store is there");
    assert!(next > latest);
}

async fn a_later_life_replaces_the_one_before([here, there]: Members) {
    let old = register(&here, instance(0, 1), 1).await;
    let mut changes = watch(&there).await;
    let new = register(&there, instance(0, 2), 2).await;
    soon(old.lost()).await;
    let updated = soon(old.update(registration(instance(0, 1), 3))).await;
    assert_eq!(updated, Err(DiscoveryError::LeaseLost(instance(0, 1))));
    drop(old);
    let updated = soon(new.update(registration(instance(0, 2), 4))).await;
    updated.expect("the end of the old life leaves the new one alone");
    let mut view = View::default();
    view.until(&mut changes, &[registration(instance(0, 2), 4)]).await;
}

async fn a_lease_covers_one_life([here, _]: Members) {
    let lease = register(&here, instance(0, 1), 1).await;
    assert_eq!(lease.instance(), instance(0, 1));
    for other in [instance(0, 2), instance(1, 1)] {
        let wrong = DiscoveryError::WrongLease {
            holder: instance(0, 1),
            instance: other,
        };
        assert_eq!(soon(lease.update(registration(other, 1))).await, Err(wrong));
    }
}

async fn ended_leases_take_their_registration_with_them([here, there]: Members) {
    let revoked = register(&here, instance(0, 1), 1).await;
    let dropped = register(&here, instance(1, 1), 1).await;
    let _kept = register(&here, instance(2, 1), 1).await;
    let (revoked_lost, dropped_lost) = (revoked.lost(), dropped.lost());
    soon(revoked.revoke()).await;
    drop(dropped);
    soon(revoked_lost).await;
    soon(dropped_lost).await;
    let mut view = View::default();
    view.until(&mut watch(&there).await, &[registration(instance(2, 1), 1)])
        .await;
}

async fn a_slow_watcher_ends_with_the_truth([here, there]: Members) {
    let mut changes = watch(&there).await;
    let mut leases = Vec::new();
    for ordinal in 0..40 {
        let lease = register(&here, instance(ordinal, 1), 0).await;
        for blocks in 1..=20 {
            let updated = soon(lease.update(registration(instance(ordinal, 1), blocks))).await;
            updated.expect("the lease lives");
        }
        leases.push(lease);
    }
    leases.truncate(3);
    let truth: Vec<_> = (0..3).map(|ordinal| registration(instance(ordinal, 1), 20)).collect();
    View::default().until(&mut changes, &truth).await;
}
