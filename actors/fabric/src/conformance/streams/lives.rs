//! Checks of identity: who is served by which life of an actor.

use cluster_messages::{Epoch, ErrorKind};

use super::{
    super::{soon, until},
    Numbers, StreamMembers, Words, instance, next_request,
};
use crate::streams::{Incoming, ServeError};

pub(super) async fn unknown_instances_are_unavailable(members: StreamMembers) {
    let refused = soon(members.open(1, 0)).await.expect_err("nobody serves");
    assert_eq!(refused.kind, ErrorKind::Unavailable);
    let _other_protocol: Incoming<Words> = members.serving.serve(instance(1), 4).expect("nobody else serves");
    let refused = soon(members.open(1, 0)).await.expect_err("nobody serves this protocol");
    assert_eq!(refused.kind, ErrorKind::Unavailable);
}

pub(super) async fn other_epochs_are_refused(members: StreamMembers) {
    let incoming = members.serve(5, 4);
    for epoch in [4, 6] {
        let refused = soon(members.open(epoch, 0)).await.expect_err("another life serves");
        assert_eq!(refused.kind, ErrorKind::Lost, "{refused}");
    }
    assert_eq!(incoming.queue_len(), 0);
    drop(incoming);
    until_refused(&members, 4, ErrorKind::Lost).await;
}

pub(super) async fn a_later_life_replaces_the_one_before(members: StreamMembers) {
    let mut old = members.serve(1, 4);
    let mut new = members.serve(2, 4);
    assert!(soon(old.next()).await.is_none(), "the old life is over");
    let stale = ServeError::Stale {
        instance: instance(1),
        known: Epoch(2),
    };
    assert_eq!(members.serving.serve::<Words>(instance(1), 4).map(drop), Err(stale));
    let taken = ServeError::Taken {
        instance: instance(2),
        protocol: "conformance.numbers",
    };
    assert_eq!(members.serving.serve::<Numbers>(instance(2), 4).map(drop), Err(taken));
    drop(old);
    accept_one(&members, &mut new, 2).await;
}

pub(super) async fn protocols_of_an_instance_are_separate(members: StreamMembers) {
    let mut numbers = members.serve(1, 4);
    let mut words: Incoming<Words> = members.serving.serve(instance(1), 4).expect("another protocol");
    let header = members.header(1, std::time::Duration::from_secs(60));
    let opening = members.asking.open::<Words>(instance(1), header, "hello".into());
    let serving = async {
        let request = next_request(&mut words).await;
        let mut sink = request.respond.accept(1);
        sink.send(request.open + " world").await.expect("the reader is there");
        sink.finish(Ok(()));
    };
    let (opened, ()) = soon(async { tokio::join!(opening, serving) }).await;
    let mut stream = opened.expect("it was accepted");
    assert_eq!(soon(stream.next()).await, Some(Ok("hello world".into())));
    drop(words);
    accept_one(&members, &mut numbers, 1).await;
}

pub(super) async fn closing_lets_in_nobody_new(members: StreamMembers) {
    let mut incoming = members.serve(1, 4);
    let first = members.open(1, 1);
    let second = async {
        until(|| incoming.queue_len() == 1).await;
        incoming.close();
        let refused = members.open(1, 2).await.expect_err("it is closed");
        assert_eq!(refused.kind, ErrorKind::Unavailable);
        next_request(&mut incoming).await.respond.accept(1).finish(Ok(()));
        assert!(incoming.next().await.is_none());
    };
    let (first, ()) = soon(async { tokio::join!(first, second) }).await;
    assert_eq!(first.expect("it waited already").next().await, None);
}

pub(super) async fn the_end_of_a_service_is_noticed(members: StreamMembers) {
    let incoming = members.serve(1, 4);
    let waiting = members.open(1, 1);
    let ending = async {
        until(|| incoming.queue_len() == 1).await;
        drop(incoming);
    };
    let (waited, ()) = soon(async { tokio::join!(waiting, ending) }).await;
    assert_eq!(waited.expect_err("nobody decided").kind, ErrorKind::Lost);
    until_refused(&members, 1, ErrorKind::Unavailable).await;
    let mut again = members.serve(1, 4);
    accept_one(&members, &mut again, 1).await;
}

/// Asks until the answer is a refusal of `kind`: the end of a service may take a moment to get around.
async fn until_refused(members: &StreamMembers, epoch: u64, kind: ErrorKind) {
    soon(async {
        loop {
            let refused = members.open(epoch, 0).await.expect_err("nobody serves");
            if refused.kind == kind {
                return;
            }
        }
    })
    .await;
}

/// One request goes through.
async fn accept_one(members: &StreamMembers, incoming: &mut Incoming<Numbers>, epoch: u64) {
    let accepting = async { next_request(incoming).await.respond.accept(1).finish(Ok(())) };
    let (opened, ()) = soon(async { tokio::join!(members.open(epoch, 0), accepting) }).await;
    assert_eq!(opened.expect("it was accepted").next().await, None);
}
