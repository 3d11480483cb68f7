//! Checks of an accepted stream: frames, its one end, back-pressure, cancellation.

use std::time::Duration;

use cluster_messages::{ErrorKind, Header, RequestError, RequestId};

use super::{super::soon, Answer, Numbers, StreamMembers, ask, instance, last_error, next, next_request};
use crate::streams::{Closed, Sink, TrySendError};

const MINUTE: Duration = Duration::from_secs(60);

/// Sends the numbers below `count`.
async fn send_numbers(sink: &mut Sink<Answer>, count: u64) -> Result<(), Closed> {
    for number in 0..count {
        sink.send(Answer::Number(number)).await?;
    }
    Ok(())
}

pub(super) async fn all_arrive_in_order_then_the_end(members: StreamMembers) {
    for capacity in [1, 3, 1000] {
        let mut incoming = members.serve(1, 4);
        let accept = |request: super::Request<Numbers>| request.respond.accept(capacity);
        let (mut stream, mut sink) = members.connect(&mut incoming, MINUTE, accept).await;
        let sending = async {
            send_numbers(&mut sink, 300).await.expect("the reader is there");
            let last = Answer::Text {
                text: "ü".repeat(5000)
            };
            sink.send(last).await.expect("the reader is there");
            sink.finish(Ok(()));
        };
        let reading = async {
            for number in 0..300 {
                assert_eq!(next(&mut stream).await, Some(Ok(Answer::Number(number))));
            }
            let last = next(&mut stream).await;
            assert_eq!(
                last,
                Some(Ok(Answer::Text {
                    text: "ü".repeat(5000)
                }))
            );
            assert_eq!(next(&mut stream).await, None);
            assert_eq!(next(&mut stream).await, None);
        };
        tokio::join!(sending, reading);
        assert_eq!(stream.instance(), instance(1));
    }
}

pub(super) async fn an_error_is_the_last_item(members: StreamMembers) {
    let mut incoming = members.serve(1, 4);
    for frames in [0, 1, 3] {
        let accept = |request: super::Request<Numbers>| request.respond.accept(8);
        let (mut stream, mut sink) = members.connect(&mut incoming, MINUTE, accept).await;
        send_numbers(&mut sink, frames).await.expect("the reader is there");
        let error = RequestError {
            kind: ErrorKind::RateLimited,
            message: "too much".into(),
            param: Some("n".into()),
            retry_after_ms: Some(1234),
            culprit: None,
        };
        sink.finish(Err(error.clone()));
        for number in 0..frames {
            assert_eq!(next(&mut stream).await, Some(Ok(Answer::Number(number))));
        }
        assert_eq!(last_error(&mut stream).await, error);
    }
}

pub(super) async fn a_dropped_sink_is_a_lost_request(members: StreamMembers) {
    let mut incoming = members.serve(1, 4);
    let accept = |request: super::Request<Numbers>| request.respond.accept(8);
    let (mut stream, mut sink) = members.connect(&mut incoming, MINUTE, accept).await;
    send_numbers(&mut sink, 2).await.expect("the reader is there");
    drop(sink);
    for number in 0..2 {
        assert_eq!(next(&mut stream).await, Some(Ok(Answer::Number(number))));
    }
    assert_eq!(last_error(&mut stream).await.kind, ErrorKind::Lost);
}

pub(super) async fn a_panic_is_a_lost_request(members: StreamMembers) {
    let mut incoming = members.serve(1, 4);
    let crash = |request: super::Request<Numbers>| {
        let mut sink = request.respond.accept(8);
        tokio::spawn(async move {
            sink.send(Answer::Number(0)).await.expect("the reader is there");
            // As a panic would: the stack is unwound and the sink with it, without a message on the console.
            std::panic::resume_unwind(Box::new("told to"));
        })
    };
    let (mut stream, crashing) = members.connect(&mut incoming, MINUTE, crash).await;
    assert_eq!(next(&mut stream).await, Some(Ok(Answer::Number(0))));
    assert_eq!(last_error(&mut stream).await.kind, ErrorKind::Lost);
    let crashed = soon(crashing).await;
    assert!(crashed.expect_err("it panicked").is_panic());
}

pub(super) async fn a_slow_reader_holds_the_sender_back(members: StreamMembers) {
    let mut incoming = members.serve(1, 4);
    let accept = |request: super::Request<Numbers>| request.respond.accept(4);
    let (mut stream, mut sink) = members.connect(&mut incoming, MINUTE, accept).await;
    let text = "x".repeat(4096);
    let mut sent = 0;
    loop {
        match sink.try_send(Answer::Text { text: text.clone() }) {
            Ok(()) => sent += 1,
            Err(TrySendError::Full(frame)) => {
                assert_eq!(frame, Answer::Text { text }, "what was not sent comes back");
                break;
            }
            Err(TrySendError::Closed(_)) => panic!("the reader is there"),
        }
        assert!(sent < 10_000, "40 MB were buffered for a reader that does not read");
        // A carrier between processes may still be moving what it was given.
        tokio::task::yield_now().await;
    }
    let ending = async {
        sink.send(Answer::Number(7)).await.expect("the reader reads again");
        sink.finish(Ok(()));
    };
    let reading = async {
        for _ in 0..sent {
            assert!(matches!(next(&mut stream).await, Some(Ok(Answer::Text { .. }))));
        }
        assert_eq!(next(&mut stream).await, Some(Ok(Answer::Number(7))));
        assert_eq!(next(&mut stream).await, None);
    };
    tokio::join!(ending, reading);
}

pub(super) async fn a_stopped_stream_can_be_read_to_its_end(members: StreamMembers) {
    let mut incoming = members.serve(1, 4);
    let accept = |request: super::Request<Numbers>| request.respond.accept(8);
    let (mut stream, mut sink) = members.connect(&mut incoming, MINUTE, accept).await;
    let stopped = sink.stopped();
    sink.send(Answer::Number(0)).await.expect("the reader is there");
    assert!(!sink.is_stopped());
    stream.stop();
    soon(stopped).await;
    assert!(sink.is_stopped());
    sink.send(Answer::Number(1)).await.expect("the reader is still there");
    sink.finish(Err(RequestError::new(ErrorKind::Cancelled, "as asked")));
    for number in 0..2 {
        assert_eq!(next(&mut stream).await, Some(Ok(Answer::Number(number))));
    }
    assert_eq!(last_error(&mut stream).await.kind, ErrorKind::Cancelled);
}

pub(super) async fn a_dropped_stream_stops_its_sender(members: StreamMembers) {
    let mut incoming = members.serve(1, 4);
    let accept = |request: super::Request<Numbers>| request.respond.accept(2);
    let (stream, mut sink) = members.connect(&mut incoming, MINUTE, accept).await;
    let stopped = sink.stopped();
    let sending = tokio::spawn(async move { send_numbers(&mut sink, u64::MAX).await });
    drop(stream);
    soon(stopped).await;
    let sent = soon(sending).await.expect("no panic");
    assert_eq!(sent, Err(Closed), "a sender that waits for room hears it, too");
}

pub(super) async fn a_silent_instance_is_left_at_the_deadline(members: StreamMembers) {
    let mut incoming = members.serve(1, 4);
    let accept = |request: super::Request<Numbers>| request.respond.accept(2);
    let (mut stream, mut sink) = members.connect(&mut incoming, Duration::from_millis(300), accept).await;
    let stopped = sink.stopped();
    sink.send(Answer::Number(0)).await.expect("the reader is there");
    assert_eq!(next(&mut stream).await, Some(Ok(Answer::Number(0))));
    assert_eq!(last_error(&mut stream).await.kind, ErrorKind::Deadline);
    soon(stopped).await;
}

pub(super) async fn a_reader_that_does_not_read_is_left_at_the_deadline(members: StreamMembers) {
    let mut incoming = members.serve(1, 4);
    let accept = |request: super::Request<Numbers>| request.respond.accept(2);
    let (stream, mut sink) = members.connect(&mut incoming, Duration::from_millis(300), accept).await;
    let text = "x".repeat(4096);
    let sending = async {
        // Enough for any carrier's buffers.
        for _ in 0..10_000 {
            sink.send(Answer::Text { text: text.clone() }).await?;
        }
        Ok(())
    };
    assert_eq!(soon(sending).await, Err(Closed));
    drop(stream);
}

pub(super) async fn many_streams_do_not_mix(members: StreamMembers) {
    const STREAMS: u64 = 64;
    const FRAMES: u64 = 40;
    let mut incoming = members.serve(1, 256);
    let serving = tokio::spawn(async move {
        let mut senders = tokio::task::JoinSet::new();
        for _ in 0..STREAMS {
            let request = next_request(&mut incoming).await;
            senders.spawn(async move {
                let mut sink = request.respond.accept(2);
                for frame in 0..FRAMES {
                    let sent = sink.send(Answer::Number(request.open.count * 1000 + frame)).await;
                    sent.expect("the reader is there");
                }
                sink.finish(Ok(()));
            });
        }
        senders.join_all().await;
    });
    let readers = (0..STREAMS).map(|number| {
        let header = Header {
            request: RequestId(u128::from(number)),
            ..members.header(1, MINUTE)
        };
        let opening = members.asking.open::<Numbers>(instance(1), header, ask(number));
        async move {
            let mut stream = opening.await.expect("all are accepted");
            for frame in 0..FRAMES {
                assert_eq!(next(&mut stream).await, Some(Ok(Answer::Number(number * 1000 + frame))));
            }
            assert_eq!(next(&mut stream).await, None);
        }
    });
    soon(futures::future::join_all(readers)).await;
    soon(serving).await.expect("no panic");
}
