//! Starting small clusters.

use std::{net::SocketAddr, time::Duration};

use cluster_fabric::Entropy;
use cluster_node::{ModelLocation, Options, Running};
use cluster_topologies::{Catalogue, Document};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    runtime::Handle,
    time::timeout,
};

/// What takes longer has failed. Nothing is waited for by the clock alone.
pub(crate) const FAR_TOO_LONG: Duration = Duration::from_secs(60);

/// One instance of each role, on free ports, with the simulated model.
pub(crate) fn options(roles: &str) -> Options {
    options_with("simulated", ModelLocation::Simulated { step_us: 0 }, roles)
}

/// The same with steps that take a moment: a long answer is still on its way when something happens to it.
pub(crate) fn slow_options(roles: &str) -> Options {
    options_with("simulated", ModelLocation::Simulated { step_us: 5_000 }, roles)
}

/// The same with another model.
pub(crate) fn options_with(source: &str, model: ModelLocation, roles: &str) -> Options {
    let text = format!(
        "name: small\nmodel: {{ source: \"{source}\", served_names: [m] }}\nkv_cache: {{ memory: 4MiB, tiers: [{{ host: 1MiB }}] }}\n\
         restart: {{ max_restarts: 0 }}\nroles:\n  tokenizer:\n  router:\n  cache:\n{roles}"
    );
    let resolved = Document::read(&text, "small.yaml").resolve(&Catalogue::shipped());
    Options {
        topology: resolved.unwrap_or_else(|problems| panic!("{problems}")),
        model,
        port: Some(0),
        api: SocketAddr::from(([127, 0, 0, 1], 0)),
        traces: cluster_telemetry::init_for_tests().traces().clone(),
        entropy: Entropy::from_seed(7),
    }
}

pub(crate) const AGGREGATED: &str = "  decode: { folds: [prefill] }\n";

/// Waits until no task of this runtime is left.
pub(crate) async fn until_no_task_is_left() {
    let metrics = Handle::current().metrics();
    let ended = async {
        while metrics.num_alive_tasks() > 0 {
            tokio::task::yield_now().await;
        }
    };
    if timeout(FAR_TOO_LONG, ended).await.is_err() {
        panic!("{} tasks are left", metrics.num_alive_tasks());
    }
}

/// Sends a request and returns the connection.
pub(crate) async fn send(running: &Running, request: &str) -> TcpStream {
    let mut connection = TcpStream::connect(running.endpoint()).await.unwrap();
    connection.write_all(request.as_bytes()).await.unwrap();
    connection
}

/// All that comes until the connection ends.
pub(crate) async fn read_to_end(mut connection: TcpStream) -> String {
    let mut text = String::new();
    let read = connection.read_to_string(&mut text);
    timeout(FAR_TOO_LONG, read).await.unwrap().unwrap();
    text
}

/// The status of a GET.
pub(crate) async fn get(running: &Running, path: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    let answer = read_to_end(send(running, &request).await).await;
    answer.split(' ').nth(1).unwrap().to_owned()
}

/// A streamed completion that goes on for long.
pub(crate) fn long_stream() -> String {
    let body = r#"{"model":"m","prompt":"x","max_tokens":4000,"ignore_eos":true,"stream":true}"#;
    format!(
        "POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// The text of a whole completion.
pub(crate) async fn complete(running: &Running) -> String {
    let body = r#"{"model":"m","prompt":"x","max_tokens":64}"#;
    let request = format!(
        "POST /v1/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    let answer = read_to_end(send(running, &request).await).await;
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    let body: serde_json::Value = serde_json::from_str(body).unwrap();
    body["choices"][0]["text"].as_str().unwrap_or_default().to_owned()
}
