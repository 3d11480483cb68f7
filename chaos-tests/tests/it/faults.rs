//! Instances die in the middle of everything; streams go on token for token, and the cluster answers the next request.

use cluster_messages::{ActorPath, Role};
use futures::future::join_all;
use serde_json::json;

use crate::sandbox::{AGGREGATED, DECODE, SPLIT, Sandbox, Topology, completion};

fn long(i: usize) -> serde_json::Value {
    completion(
        &format!("Tell a long story about {i}. "),
        &json!({"max_tokens": 1500, "temperature": 0.7, "seed": i}),
    )
}

/// Kills `path` once every stream has begun, and demands that each ends as if nothing had happened.
async fn survives(workers: &str, path: ActorPath) {
    // A step takes long enough for the fault to find every stream in the middle.
    let sandbox = Sandbox::start(Topology {
        workers,
        step_us: 300,
        ..Topology::default()
    })
    .await;
    let undisturbed = join_all((0..8).map(|i| {
        let sandbox = &sandbox;
        async move { sandbox.stream("/v1/completions", &long(i)).await.rest().await }
    }))
    .await;
    let mut streams = Vec::new();
    for i in 0..8 {
        let mut stream = sandbox.stream("/v1/completions", &long(i)).await;
        let first = stream.next().await.expect("a first event");
        streams.push((first, stream));
    }
    sandbox.running.kill(path);
    for ((first, stream), expected) in streams.into_iter().zip(undisturbed) {
        let mut ended = stream.rest().await;
        let first: serde_json::Value = serde_json::from_str(&first).expect("JSON");
        ended
            .text
            .insert_str(0, first["choices"][0]["text"].as_str().unwrap_or_default());
        assert_eq!(ended, expected, "{path}");
    }
    if path.role == Role::Decode {
        assert!(
            sandbox.metric("cluster_request_migrations_total") > 0.0,
            "no stream was there to move"
        );
    }
    sandbox.wait_for_restart(path, 1).await;
    sandbox.complete("still there?", &json!({})).await;
    sandbox.wait_for_base_line().await;
    sandbox.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_survive_the_death_of_the_only_worker() {
    survives(AGGREGATED, DECODE).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_survive_the_death_of_one_decode_of_two() {
    survives(SPLIT, ActorPath::new(Role::Decode, 1)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_survive_the_death_of_the_only_prefill_and_of_the_only_decode() {
    for role in [Role::Prefill, Role::Decode] {
        survives("  prefill:\n  decode:\n", ActorPath::new(role, 0)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_survive_the_death_of_prefill_router_and_cache() {
    for role in [Role::Prefill, Role::Router, Role::Cache] {
        survives(SPLIT, ActorPath::new(role, 0)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_tokenizer_ends_its_streams_with_one_error_and_is_replaced() {
    let sandbox = Sandbox::start(Topology::default()).await;
    let mut stream = sandbox
        .stream("/v1/completions", &completion("long", &json!({"max_tokens": 4000})))
        .await;
    stream.next().await.expect("a first event");
    let tokenizer = ActorPath::new(Role::Tokenizer, 0);
    sandbox.running.kill(tokenizer);
    let ended = stream.rest().await;
    assert!(
        ended.error.is_some() && ended.finish.is_empty() && !ended.done,
        "{ended:?}"
    );
    sandbox.wait_for_restart(tokenizer, 1).await;
    sandbox.complete("next", &json!({})).await;
    sandbox.wait_for_base_line().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_role_can_die_between_requests() {
    let sandbox = Sandbox::start(Topology {
        workers: SPLIT,
        ..Topology::default()
    })
    .await;
    let expected = sandbox.complete("again and again", &json!({})).await;
    for role in [Role::Tokenizer, Role::Router, Role::Prefill, Role::Decode, Role::Cache] {
        let path = ActorPath::new(role, 0);
        sandbox.running.kill(path);
        sandbox.wait_for_restart(path, 1).await;
        let answer = sandbox.complete("again and again", &json!({})).await;
        assert_eq!(answer["choices"], expected["choices"], "{role}");
    }
}
