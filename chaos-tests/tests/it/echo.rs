//! Answers that begin with the prompt, scored or not: every choice has it, once, wherever it was computed.

use serde_json::{Value, json};

use crate::sandbox::{AGGREGATED, SPLIT, Sandbox, Topology};

const PROMPT: &str = "Say it again";

async fn cluster(workers: &str) -> Sandbox {
    Sandbox::start(Topology {
        workers,
        ..Topology::default()
    })
    .await
}

fn choices(answer: &Value) -> &Vec<Value> {
    answer["choices"].as_array().expect("choices")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_choice_begins_with_the_scored_prompt_split_or_not() {
    let extra = json!({"echo": true, "logprobs": 1, "n": 3, "max_tokens": 4});
    let mut expected: Option<Value> = None;
    for workers in [AGGREGATED, SPLIT] {
        let sandbox = cluster(workers).await;
        // In a split cluster the scores and the last page come by two ways, in either order.
        for _ in 0..20 {
            let answer = sandbox.complete(PROMPT, &extra).await;
            for choice in choices(&answer) {
                let text = choice["text"].as_str().expect("a text");
                assert!(text.starts_with(PROMPT), "{workers}: {choice}");
                let scores = choice["logprobs"]["token_logprobs"].as_array().expect("scores");
                assert_eq!(scores.len(), PROMPT.len() + 4, "{workers}: {choice}");
                assert!(scores[0].is_null() && scores[1].is_number(), "{choice}");
            }
            let all = expected.get_or_insert_with(|| answer["choices"].clone());
            assert_eq!(&answer["choices"], all, "{workers}");
        }
        sandbox.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_echo_without_an_answer_ends_with_length() {
    let sandbox = cluster(AGGREGATED).await;
    for extra in [
        json!({"echo": true, "max_tokens": 0}),
        json!({"echo": true, "max_tokens": 0, "logprobs": 1}),
    ] {
        let answer = sandbox.complete(PROMPT, &extra).await;
        assert_eq!(choices(&answer)[0]["text"], PROMPT, "{answer}");
        assert_eq!(choices(&answer)[0]["finish_reason"], "length", "{answer}");
        assert_eq!(answer["usage"]["completion_tokens"], 0);
    }
}
