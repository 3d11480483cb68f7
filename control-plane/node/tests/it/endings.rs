//! Every way a cluster ends.

use std::{
    future::poll_fn,
    pin::pin,
    task::{Context, Poll},
    time::Duration,
};

use cluster_gateway::Drained;
use cluster_messages::{ActorPath, Role};
use cluster_node::{End, Running, start};
use cluster_roles::State;
use tokio::{io::AsyncReadExt, net::TcpStream, time::timeout};

use crate::sandbox::{
    AGGREGATED, FAR_TOO_LONG, get, long_stream, options, read_to_end, send, slow_options, until_no_task_is_left,
};

/// A stream whose first text has come.
async fn streaming(running: &Running) -> TcpStream {
    let mut connection = send(running, &long_stream()).await;
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains("data: ") {
        let read = timeout(FAR_TOO_LONG, connection.read_buf(&mut seen)).await.unwrap();
        assert!(read.unwrap() > 0, "{}", String::from_utf8_lossy(&seen));
    }
    connection
}

fn assert_cut_honestly(rest: &str) {
    assert_eq!(rest.matches("\"code\":\"unavailable\"").count(), 1, "{rest}");
    assert!(!rest.contains("[DONE]"), "{rest}");
}

#[tokio::test]
async fn without_grace_every_stream_gets_its_one_error() {
    let running = start(slow_options(AGGREGATED)).await.unwrap();
    let streams = [streaming(&running).await, streaming(&running).await];
    let drained = timeout(FAR_TOO_LONG, running.shutdown(Duration::ZERO)).await.unwrap();
    assert_eq!(drained, Some(Drained::Cut));
    for stream in streams {
        assert_cut_honestly(&read_to_end(stream).await);
    }
    until_no_task_is_left().await;
}

#[tokio::test]
async fn a_long_grace_can_be_cut_short() {
    let running = start(slow_options(AGGREGATED)).await.unwrap();
    let stream = streaming(&running).await;
    let cut = running.cut();
    let mut stopping = pin!(running.shutdown(10 * FAR_TOO_LONG));
    assert!(poll_once(stopping.as_mut()).await.is_pending());
    cut.now();
    assert_eq!(timeout(FAR_TOO_LONG, stopping).await.unwrap(), Some(Drained::Cut));
    assert_cut_honestly(&read_to_end(stream).await);
}

async fn poll_once<T>(mut future: std::pin::Pin<&mut impl Future<Output = T>>) -> Poll<T> {
    poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await
}

#[tokio::test]
async fn dropping_it_ends_everything() {
    let running = start(slow_options(AGGREGATED)).await.unwrap();
    let stream = streaming(&running).await;
    let (board, endpoint, api) = (running.board().clone(), running.endpoint(), running.api());
    drop(running);
    let stopped = board.wait_for(|all| all.values().all(|instance| instance.state == State::Stopped));
    timeout(FAR_TOO_LONG, stopped).await.unwrap();
    drop(stream);
    until_no_task_is_left().await;
    for address in [endpoint, api] {
        assert!(TcpStream::connect(address).await.is_err());
    }
}

/// Gives up on a start after each number of its steps in turn.
#[tokio::test]
async fn a_start_that_is_given_up_leaves_nothing_behind() {
    for steps in 0.. {
        let came_up = {
            let mut starting = pin!(start(options(AGGREGATED)));
            let mut taken = 0;
            let limited = poll_fn(|context: &mut Context<'_>| {
                if taken == steps {
                    return Poll::Ready(None);
                }
                taken += 1;
                starting.as_mut().poll(context).map(Some)
            });
            timeout(FAR_TOO_LONG, limited).await.unwrap()
        };
        if let Some(running) = came_up {
            assert!(steps > 3, "it has to wait for its actors");
            running.unwrap().shutdown(FAR_TOO_LONG).await;
            return until_no_task_is_left().await;
        }
        until_no_task_is_left().await;
    }
}

#[tokio::test]
async fn a_needed_role_that_is_down_for_good_ends_it_and_a_cache_does_not() {
    let mut running = start(options(AGGREGATED)).await.unwrap();
    let board = running.board().clone();
    let has_failed = async |role| {
        let path = ActorPath::new(role, 0);
        let failed = board.wait_for(|all| all[&path].state == State::Failed);
        timeout(FAR_TOO_LONG, failed).await.unwrap();
    };
    assert_eq!(get(&running, "/ready").await, "200");

    running.kill(ActorPath::new(Role::Cache, 0));
    has_failed(Role::Cache).await;
    assert!(poll_once(pin!(running.wait_for_end())).await.is_pending());
    assert_eq!(get(&running, "/ready").await, "200");

    running.kill(ActorPath::new(Role::Router, 0));
    has_failed(Role::Router).await;
    let end = timeout(FAR_TOO_LONG, running.wait_for_end()).await.unwrap();
    assert_eq!(end, End::Failed(ActorPath::new(Role::Router, 0)));
    while get(&running, "/ready").await != "503" {}
    running.shutdown(Duration::ZERO).await;
}
