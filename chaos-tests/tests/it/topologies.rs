//! Every shipped topology, brought up here: the recorded answers of muse-nano from every layout, or a refusal that says what
//! is not supported yet.

use cluster_node::served_model;
use cluster_topologies::{
    Catalogue, Document, ModelOrigin, Resolved, RoleName,
    catalogue::{shipped_topologies, shipped_topology},
    unsupported,
};
use futures::future::join_all;
use hyper::StatusCode;

use crate::{
    muse::{Case, ask, cases},
    sandbox::Sandbox,
};

/// How many of the recorded texts each layout is asked, beside a picture.
const TEXTS: usize = 4;

fn document(name: &str) -> Document {
    let text = shipped_topology(name).expect("a shipped topology");
    Document::read(text, name)
}

fn resolved(name: &str) -> Resolved {
    let resolved = document(name).resolve(&Catalogue::shipped());
    resolved.unwrap_or_else(|problems| panic!("{problems}"))
}

/// The shipped topologies that this version brings up with muse-nano; those that serve a model to be fetched first are left
/// out.
fn startable() -> Vec<&'static str> {
    let names = shipped_topologies().iter().map(|(name, _)| *name);
    names
        .filter(|name| serves_muse_nano(name) && refusals(name).is_empty())
        .collect()
}

fn serves_muse_nano(name: &str) -> bool {
    matches!(served_model(&resolved(name)), ModelOrigin::File(file) if file.name.as_str() == "muse-nano")
}

/// What `up` says instead of starting.
fn refusals(name: &str) -> Vec<String> {
    let document = document(name);
    let topology = document.topology().unwrap_or_else(|problems| panic!("{problems}"));
    unsupported(topology)
        .into_iter()
        .map(|problem| problem.message)
        .collect()
}

/// Whether a role encodes pictures, apart or inside another one.
fn encodes(name: &str) -> bool {
    let topology = resolved(name);
    let mut folds = topology.workers().flat_map(|(_, worker)| worker.folds.clone());
    topology.encoder.is_some() || folds.any(|role| role == RoleName::Encoder)
}

/// Every layout is asked the same, so equal to the recording means equal to each other.
async fn answers_as_recorded(name: &str, texts: &[Case], picture: &Case) {
    let sandbox = Sandbox::shipped(name).await;
    let answers = join_all(texts.iter().map(|case| ask(&sandbox, case)));
    for (case, answer) in texts.iter().zip(answers.await) {
        assert_eq!(answer, case.expected, "{name}: {}", case.name);
    }
    if encodes(name) {
        assert_eq!(
            ask(&sandbox, picture).await,
            picture.expected,
            "{name}: {}",
            picture.name
        );
    } else {
        refuses(&sandbox, picture).await;
    }
    sandbox.wait_for_base_line().await;
    sandbox.stop().await;
}

/// A model that is served without an encoder says so.
async fn refuses(sandbox: &Sandbox, picture: &Case) {
    let mut body = picture.body.clone();
    body["model"] = sandbox.model().into();
    let (status, answer) = sandbox.post("/v1/chat/completions", &body).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{answer}");
    let message = answer["error"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("without images"), "{answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_shipped_layout_gives_the_recorded_answers() {
    let (pictures, texts): (Vec<_>, Vec<_>) = cases().into_iter().partition(|case| case.has_picture);
    // Spread over the recording: plain answers, sums with reasoning, tools.
    let step = texts.len() / TEXTS;
    let texts: Vec<Case> = texts.into_iter().step_by(step).collect();
    let names = startable();
    assert!(names.len() >= 20, "{names:?}");
    for name in names {
        answers_as_recorded(name, &texts, &pictures[0]).await;
    }
}

#[test]
fn layouts_that_are_not_brought_up_yet_say_what_is_missing() {
    let asks = |name: &str, field: &str| {
        let resolved = resolved(name);
        resolved.workers().any(|(_, worker)| match field {
            "data" => worker.parallel.data > 1,
            _ => worker.speculation.is_some(),
        })
    };
    for (name, _) in shipped_topologies() {
        let refusals = refusals(name);
        assert_eq!(
            !refusals.is_empty(),
            asks(name, "data") || asks(name, "speculation"),
            "{name}: {refusals:?}"
        );
        for message in refusals {
            assert!(message.ends_with(": not supported yet"), "{name}: {message}");
        }
    }
}
