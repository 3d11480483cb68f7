//! Checks of opening: what arrives, what is refused, who waits how long.

use std::{pin::pin, time::Duration};

use cluster_messages::{ErrorKind, RequestError};

use super::{
    super::{soon, until},
    StreamMembers, ask, next_request,
};

pub(super) async fn a_request_arrives_as_it_was_sent(members: StreamMembers) {
    let mut incoming = members.serve(1, 4);
    let sent = members.header(99, Duration::from_secs(60));
    let (_, request) = members
        .connect(&mut incoming, Duration::from_secs(60), |request| {
            let seen = (request.header, request.open);
            drop(request.respond.accept(1));
            seen
        })
        .await;
    let (header, open) = request;
    assert_eq!(open, ask(0));
    assert_eq!(header.trace, sent.trace);
    assert_eq!(header.request.0, 1);
    // A carrier between machines rebuilds the deadline from the time left.
    assert!(
        header.deadline.0.abs_diff(sent.deadline.0) < 5_000,
        "{:?}, sent {:?}",
        header.deadline,
        sent.deadline
    );
}

pub(super) async fn a_refusal_tells_everything(members: StreamMembers) {
    let mut incoming = members.serve(1, 4);
    let error = RequestError {
        kind: ErrorKind::ContextLength,
        message: "9 tokens over".into(),
        param: Some("messages".into()),
        retry_after_ms: Some(77),
        culprit: Some(super::instance(1)),
    };
    let refusing = async { next_request(&mut incoming).await.respond.refuse(error.clone()) };
    let (opened, ()) = soon(async { tokio::join!(members.open(1, 0), refusing) }).await;
    assert_eq!(opened.expect_err("it was refused"), error);
}

pub(super) async fn an_undecided_request_is_lost(members: StreamMembers) {
    let mut incoming = members.serve(1, 4);
    let dropping = async { drop(next_request(&mut incoming).await) };
    let (opened, ()) = soon(async { tokio::join!(members.open(1, 0), dropping) }).await;
    assert_eq!(opened.expect_err("nobody decided").kind, ErrorKind::Lost);
}

pub(super) async fn a_full_queue_is_overloaded(members: StreamMembers) {
    let mut incoming = members.serve(1, 1);
    let first = members.open(1, 1);
    let second = async {
        until(|| incoming.queue_len() == 1).await;
        let refused = members.open(1, 2).await.expect_err("the queue is full");
        assert_eq!(refused.kind, ErrorKind::Overloaded);
        assert!(refused.retry_after_ms.is_some());
        let request = next_request(&mut incoming).await;
        assert_eq!(request.open.count, 1);
        request.respond.accept(1).finish(Ok(()));
    };
    let (first, ()) = soon(async { tokio::join!(first, second) }).await;
    assert_eq!(first.expect("it was accepted").next().await, None);
}

pub(super) async fn a_request_that_was_taken_back_is_not_shown(members: StreamMembers) {
    let mut incoming = members.serve(1, 4);
    {
        let mut opening = pin!(members.open(1, 1));
        let queued = until(|| incoming.queue_len() == 1);
        soon(async {
            tokio::select! {
                _ = &mut opening => panic!("nobody decided"),
                () = queued => {}
            }
        })
        .await;
    }
    // A request taken back may take a moment to be seen as such; the next one comes behind it in any case.
    let (opened, shown) = soon(async {
        tokio::join!(members.open(1, 2), async {
            loop {
                let request = next_request(&mut incoming).await;
                if request.open.count == 2 {
                    request.respond.accept(1).finish(Ok(()));
                    return incoming.queue_len();
                }
                let mut respond = request.respond;
                respond.abandoned().await;
            }
        })
    })
    .await;
    assert_eq!(opened.expect("it was accepted").next().await, None);
    assert_eq!(shown, 0);
}

pub(super) async fn an_abandoned_decision_is_noticed(members: StreamMembers) {
    let mut incoming = members.serve(1, 4);
    let mut respond = {
        let mut opening = pin!(members.open(1, 1));
        soon(async {
            tokio::select! {
                _ = &mut opening => panic!("nobody decided"),
                request = next_request(&mut incoming) => request.respond,
            }
        })
        .await
    };
    soon(respond.abandoned()).await;
    assert!(respond.is_abandoned());
    let sink = respond.accept(1);
    soon(sink.stopped()).await;
}

pub(super) async fn nobody_waits_past_the_deadline(members: StreamMembers) {
    let mut incoming = members.serve(1, 4);
    let asking = async |ahead| {
        let header = members.header(1, ahead);
        let opened = members
            .asking
            .open::<super::Numbers>(super::instance(1), header, ask(1));
        soon(opened).await.expect_err("nobody decided").kind
    };
    assert_eq!(asking(Duration::ZERO).await, ErrorKind::Deadline);
    assert_eq!(asking(Duration::from_millis(100)).await, ErrorKind::Deadline);
    // What waited too long is not shown: the next request seen is a live one.
    let serving = async {
        let request = next_request(&mut incoming).await;
        assert_eq!(request.open.count, 2);
        request.respond.accept(1).finish(Ok(()));
    };
    let (opened, ()) = soon(async { tokio::join!(members.open(1, 2), serving) }).await;
    assert_eq!(opened.expect("it was accepted").next().await, None);
}
