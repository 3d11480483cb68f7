//! Too much at once: everybody gets a whole answer or a clean refusal, and afterwards everything is as before.

use futures::future::join_all;
use hyper::StatusCode;
use serde_json::json;
use tokio::time::timeout;

use crate::sandbox::{FAR_TOO_LONG, SPLIT, Sandbox, Topology, completion};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_at_once_are_answered_or_refused() {
    let more = "kv_cache: { memory: 256KiB, tiers: [{ host: 1MiB }] }\nlimits: { requests_max: 64 }\n";
    let sandbox = Sandbox::start(Topology {
        workers: SPLIT,
        more,
        ..Topology::default()
    })
    .await;
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let ask = |i: usize| {
        let sandbox = &sandbox;
        async move {
            sandbox
                .post("/v1/completions", &completion(&format!("burst {i}"), &json!({})))
                .await
        }
    };
    join_all((0..4).map(ask)).await;
    sandbox.wait_for_base_line().await;
    let before = tasks();
    let answers = join_all((0..200).map(ask)).await;
    let mut refused = 0;
    for (status, answer) in &answers {
        match *status {
            StatusCode::OK => assert_eq!(answer["usage"]["completion_tokens"], 32, "{answer}"),
            StatusCode::SERVICE_UNAVAILABLE => {
                assert_eq!(answer["error"]["code"], "overloaded", "{answer}");
                refused += 1;
            }
            other => panic!("{other}: {answer}"),
        }
    }
    assert!(refused > 0 && refused < 200, "{refused} refused");
    sandbox.wait_for_base_line().await;
    // Connections and messages on their way end by themselves; a task that was left behind does not.
    let settled = async {
        while tasks() > before + 4 {
            tokio::task::yield_now().await;
        }
    };
    let settled = timeout(FAR_TOO_LONG, settled).await;
    assert!(settled.is_ok(), "{} tasks, {before} before", tasks());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_leave_free_their_blocks() {
    for workers in [crate::sandbox::AGGREGATED, SPLIT] {
        let sandbox = Sandbox::start(Topology {
            workers,
            ..Topology::default()
        })
        .await;
        for i in 0..8 {
            let body = completion(&format!("leaving {i}"), &json!({"max_tokens": 4000}));
            let mut stream = sandbox.stream("/v1/completions", &body).await;
            stream.next().await.expect("a first event");
        }
        sandbox.wait_for_base_line().await;
        sandbox.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prompt_that_is_too_long_is_refused_before_any_work() {
    let sandbox = Sandbox::start(Topology::default()).await;
    let (status, answer) = sandbox
        .post("/v1/completions", &completion(&"word ".repeat(4000), &json!({})))
        .await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert_eq!(answer["error"]["code"], "context_length_exceeded");
    let message = answer["error"]["message"].as_str().expect("a message");
    assert!(message.contains("20000") && message.contains("4096"), "{message}");
    let edge = sandbox.complete(&"x".repeat(4095), &json!({"max_tokens": 100})).await;
    assert_eq!(edge["usage"]["completion_tokens"], 1);
    assert_eq!(edge["choices"][0]["finish_reason"], "length");
}
