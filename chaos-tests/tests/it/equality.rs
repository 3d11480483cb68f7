//! The same request gives the same tokens, wherever and in whatever company it is computed. The simulated model reads its
//! whole history back from the blocks, so a page that is wrong, stale or misplaced changes the text.

use futures::future::join_all;
use serde_json::{Value, json};

use crate::sandbox::{SPLIT, Sandbox, Topology};

fn prompt(i: usize) -> String {
    let shared = "You are a careful assistant. ".repeat(i % 4);
    format!("{shared}Question {i}: {}", "why? ".repeat(i * 3 % 50))
}

fn settings(i: usize) -> Value {
    match i % 4 {
        0 => json!({}),
        1 => json!({"temperature": 0.8, "seed": i}),
        2 => json!({"temperature": 1.0, "top_p": 0.9, "seed": i, "frequency_penalty": 0.5}),
        _ => json!({"max_tokens": 7 + i, "temperature": 0.5, "top_k": 20, "seed": i}),
    }
}

fn text(answer: &Value) -> String {
    answer["choices"][0]["text"].as_str().expect("a text").to_owned()
}

async fn alone(sandbox: &Sandbox, count: usize) -> Vec<String> {
    let mut texts = Vec::new();
    for i in 0..count {
        texts.push(text(&sandbox.complete(&prompt(i), &settings(i)).await));
    }
    texts
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thirty_two_at_once_equal_the_same_alone_split_or_not() {
    let aggregated = Sandbox::start(Topology::default()).await;
    let expected = alone(&aggregated, 32).await;
    let different: std::collections::BTreeSet<_> = expected.iter().collect();
    assert!(different.len() > 24, "the model tells prompts apart");

    let split = Sandbox::start(Topology {
        workers: SPLIT,
        ..Topology::default()
    })
    .await;
    for sandbox in [&aggregated, &split] {
        let requests = (0..32).map(|i| async move { text(&sandbox.complete(&prompt(i), &settings(i)).await) });
        assert_eq!(join_all(requests).await, expected);
        sandbox.wait_for_base_line().await;
    }
    assert_eq!(alone(&split, 32).await, expected, "warm and split");
    aggregated.stop().await;
    split.stop().await;
}

async fn ask_long(sandbox: &Sandbox, i: usize) -> String {
    text(&sandbox.complete(&prompt(i), &json!({"max_tokens": 64})).await)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_that_is_too_small_costs_time_and_no_token() {
    let roomy = Sandbox::start(Topology {
        context: 1024,
        ..Topology::default()
    })
    .await;
    // Room for about three of the 32 at a time: sequences are preempted, blocks evicted and fetched back from the cache.
    let more = "kv_cache: { memory: 32KiB, tiers: [{ host: 1MiB }] }\n";
    let tight = Sandbox::start(Topology {
        more,
        context: 1024,
        ..Topology::default()
    })
    .await;
    let expected = join_all((0..16).map(|i| ask_long(&roomy, i))).await;
    for _ in 0..2 {
        assert_eq!(join_all((0..16).map(|i| ask_long(&tight, i))).await, expected);
    }
    tight.wait_for_base_line().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streamed_equals_whole_and_cached_tokens_are_exact() {
    for workers in [crate::sandbox::AGGREGATED, "  prefill:\n  decode:\n"] {
        let sandbox = Sandbox::start(Topology {
            workers,
            ..Topology::default()
        })
        .await;
        let prompt = "x".repeat(300);
        let cached = |answer: &Value| answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64();
        let cold = sandbox.complete(&prompt, &json!({})).await;
        assert_eq!(cold["usage"]["prompt_tokens"], 300);
        assert_eq!(cached(&cold), Some(0), "{workers}");
        let warm = sandbox.complete(&prompt, &json!({})).await;
        // The largest multiple of the block of 16 that leaves a token to compute.
        assert_eq!(cached(&warm), Some(288), "{workers}");
        assert_eq!(text(&warm), text(&cold));
        let changed = format!("{}{}{}", &prompt[..150], "y".repeat(10), &prompt[160..]);
        let changed = sandbox.complete(&changed, &json!({})).await;
        assert_eq!(cached(&changed), Some(144), "{workers}");
        let streamed = sandbox
            .stream("/v1/completions", &crate::sandbox::completion(&prompt, &json!({})))
            .await;
        let streamed = streamed.rest().await;
        assert_eq!(streamed.text, text(&cold));
        assert!(
            streamed.done && streamed.finish.len() == 1 && streamed.error.is_none(),
            "{streamed:?}"
        );
        sandbox.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_choices_are_those_of_several_requests() {
    let sandbox = Sandbox::start(Topology::default()).await;
    let request = json!({"n": 3, "temperature": 1.0, "seed": 5});
    let three = sandbox.complete("choose", &request).await;
    let one = sandbox
        .complete("choose", &json!({"temperature": 1.0, "seed": 5}))
        .await;
    let texts: Vec<_> = three["choices"]
        .as_array()
        .expect("choices")
        .iter()
        .map(|choice| &choice["text"])
        .collect();
    assert_eq!(texts.len(), 3);
    assert_eq!(texts[0], &one["choices"][0]["text"], "n does not change the first");
    assert!(texts[0] != texts[1] && texts[1] != texts[2], "{texts:?}");
    assert_eq!(three["usage"]["completion_tokens"], 96);
}
