//! The suite of [`Documents`].

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;

use super::soon;
use crate::discovery::{DiscoveryError, DocumentChange, DocumentWatch, Documents, Revision};

type Members = [Arc<dyn Documents>; 2];

/// Runs all checks of the document store. `make` gives two members of a fresh world.
pub async fn documents(make: impl AsyncFn() -> Members) {
    what_one_writes_the_other_reads(make().await).await;
    a_swap_compares_first(make().await).await;
    no_update_is_lost(make().await).await;
    lists_are_ordered_and_end_with_their_prefix(make().await).await;
    a_deletion_compares_first(make().await).await;
    a_watch_follows_its_prefix_in_order(make().await).await;
    a_slow_watcher_ends_with_the_truth(make().await).await;
}

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

async fn put(member: &Arc<dyn Documents>, key: &str, value: &str) -> Revision {
    soon(member.put(key, bytes(value))).await.expect("the store is there")
}

async fn keys(member: &Arc<dyn Documents>, prefix: &str) -> Vec<String> {
    let listed = soon(member.list(prefix)).await.expect("the store is there");
    listed.into_iter().map(|document| document.key).collect()
}

async fn watch(member: &Arc<dyn Documents>, prefix: &str) -> DocumentWatch {
    soon(member.watch_prefix(prefix)).await.expect("the store is there")
}

async fn next(watch: &mut DocumentWatch) -> DocumentChange {
    soon(watch.next()).await.expect("the store stays")
}

async fn what_one_writes_the_other_reads([here, there]: Members) {
    assert_eq!(soon(there.get("plans/a")).await, Ok(None));
    let first = put(&here, "plans/a", "one").await;
    let second = put(&here, "plans/a", "two").await;
    assert!(second > first);
    let document = soon(there.get("plans/a"))
        .await
        .expect("the store is there")
        .expect("it was written");
    assert_eq!(
        (document.key.as_str(), document.value, document.revision),
        ("plans/a", bytes("two"), second)
    );
}

async fn a_swap_compares_first([here, there]: Members) {
    let created = soon(here.compare_and_swap("plans/a", None, bytes("one"))).await;
    let created = created.expect("it did not exist");
    let conflict = |expected| DiscoveryError::Conflict {
        key: "plans/a".into(),
        expected,
        found: Some(created),
    };
    let again = soon(there.compare_and_swap("plans/a", None, bytes("two"))).await;
    assert_eq!(again, Err(conflict(None)));
    let other = Some(Revision(created.0 + 1_000));
    let wrong = soon(there.compare_and_swap("plans/a", other, bytes("two"))).await;
    assert_eq!(wrong, Err(conflict(other)));
    let swapped = soon(there.compare_and_swap("plans/a", Some(created), bytes("two"))).await;
    assert!(swapped.expect("nobody wrote in between") > created);
    let missing = soon(here.compare_and_swap("plans/b", Some(created), bytes("x"))).await;
    assert!(
        matches!(missing, Err(DiscoveryError::Conflict { found: None, .. })),
        "{missing:?}"
    );
}

async fn no_update_is_lost([here, there]: Members) {
    put(&here, "count", "0").await;
    soon(async { tokio::join!(count_up(&here, 20), count_up(&there, 20)) }).await;
    let counted = soon(here.get("count"))
        .await
        .expect("the store is there")
        .expect("it was written");
    assert_eq!(counted.value, bytes("40"));
}

/// Adds 1 to a document `times` times, whatever others do.
async fn count_up(member: &Arc<dyn Documents>, times: u32) {
    let mut done = 0;
    while done < times {
        let document = member
            .get("count")
            .await
            .expect("the store is there")
            .expect("it was written");
        let text = str::from_utf8(&document.value).expect("digits");
        let count: u32 = text.parse().expect("a number");
        // Others get their turn between reading and writing.
        tokio::task::yield_now().await;
        let value = bytes(&(count + 1).to_string());
        match member.compare_and_swap("count", Some(document.revision), value).await {
            Ok(_) => done += 1,
            Err(DiscoveryError::Conflict { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }
}

async fn lists_are_ordered_and_end_with_their_prefix([here, there]: Members) {
    for key in ["plans/b/2", "plans/a/1", "plansx", "plans/b/10", "topologies/a", "plan"] {
        put(&here, key, "x").await;
    }
    assert_eq!(keys(&there, "plans/").await, ["plans/a/1", "plans/b/10", "plans/b/2"]);
    assert_eq!(keys(&there, "plans/b/2").await, ["plans/b/2"]);
    assert_eq!(keys(&there, "nothing").await, [""; 0]);
}

async fn a_deletion_compares_first([here, there]: Members) {
    let old = put(&here, "plans/a", "one").await;
    let new = put(&here, "plans/a", "two").await;
    let conflict = DiscoveryError::Conflict {
        key: "plans/a".into(),
        expected: Some(old),
        found: Some(new),
    };
    assert_eq!(soon(there.delete("plans/a", old)).await, Err(conflict));
    assert_eq!(soon(there.delete("plans/a", new)).await, Ok(()));
    assert_eq!(soon(here.get("plans/a")).await, Ok(None));
    let created = soon(here.compare_and_swap("plans/a", None, bytes("three"))).await;
    assert!(created.expect("it was deleted") > new, "revisions never go back");
}

async fn a_watch_follows_its_prefix_in_order([here, there]: Members) {
    put(&here, "plans/a", "zero").await;
    put(&here, "other", "zero").await;
    let mut changes = watch(&there, "plans/").await;
    put(&here, "other", "one").await;
    put(&here, "plans/a", "one").await;
    let last = put(&here, "plans/b", "two").await;
    soon(here.delete("plans/b", last))
        .await
        .expect("nobody wrote in between");
    put(&here, "plans/c", "three").await;
    let DocumentChange::Resync(first) = next(&mut changes).await else {
        panic!("a watch begins with what is there");
    };
    let first: Vec<_> = first
        .iter()
        .map(|document| (document.key.as_str(), &document.value[..]))
        .collect();
    assert_eq!(first, [("plans/a", &b"zero"[..])]);
    let mut heard = Vec::new();
    for _ in 0..4 {
        heard.push(match next(&mut changes).await {
            DocumentChange::Put(document) => format!("{}={}", document.key, String::from_utf8_lossy(&document.value)),
            DocumentChange::Deleted(key) => format!("{key} deleted"),
            DocumentChange::Resync(all) => panic!("nothing was missed, yet a resync of {}", all.len()),
        });
    }
    assert_eq!(
        heard,
        ["plans/a=one", "plans/b=two", "plans/b deleted", "plans/c=three"]
    );
}

async fn a_slow_watcher_ends_with_the_truth([here, there]: Members) {
    let mut changes = watch(&there, "").await;
    for round in 0..60 {
        for key in 0..10 {
            put(&here, &format!("key/{key}"), &round.to_string()).await;
        }
    }
    let truth: BTreeMap<_, _> = (0..10).map(|key| (format!("key/{key}"), bytes("59"))).collect();
    let mut view = BTreeMap::new();
    while view != truth {
        match next(&mut changes).await {
            DocumentChange::Resync(all) => view = all.into_iter().map(|one| (one.key, one.value)).collect(),
            DocumentChange::Put(one) => drop(view.insert(one.key, one.value)),
            DocumentChange::Deleted(key) => drop(view.remove(&key)),
        }
    }
}
