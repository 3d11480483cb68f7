//! A whole cluster in this process on free ports, and a client that reads its HTTP as a user's would.

use std::{net::SocketAddr, time::Duration};

use bytes::Bytes;
use cluster_fabric::Entropy;
use cluster_messages::{ActorPath, Role};
use cluster_node::{ModelLocation, Options, Running, start};
use cluster_roles::Instance;
use cluster_topologies::{Catalogue, Document, Resolved};
use http_body_util::{BodyExt, Full};
use hyper::{Request, Response, StatusCode, body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::{net::TcpStream, time::timeout};

/// A condition that takes longer than this is a failure of the test; none is waited for by the clock alone.
pub(crate) const FAR_TOO_LONG: Duration = Duration::from_secs(60);

pub(crate) const AGGREGATED: &str = "  decode: { folds: [prefill] }\n";
pub(crate) const SPLIT: &str = "  prefill: { replicas: 2 }\n  decode: { replicas: 2 }\n";

/// A running cluster.
pub(crate) struct Sandbox {
    pub(crate) running: Running,
    pub(crate) address: SocketAddr,
    _script: Option<tempfile::NamedTempFile>,
}

/// What the parts of a topology under test are.
pub(crate) struct Topology<'a> {
    /// Lines under `roles:` for the workers.
    pub(crate) workers: &'a str,
    /// Further top-level lines.
    pub(crate) more: &'a str,
    /// A script file's text; none: the simulated model.
    pub(crate) script: Option<&'a str>,
    /// The longest sequence.
    pub(crate) context: u32,
    /// Microseconds that a step of the simulated model takes.
    pub(crate) step_us: u64,
}

impl Default for Topology<'_> {
    fn default() -> Self {
        Self {
            workers: AGGREGATED,
            more: "kv_cache: { memory: 4MiB, tiers: [{ host: 4MiB }] }\n",
            script: None,
            context: 4096,
            step_us: 0,
        }
    }
}

impl Sandbox {
    /// Starts a cluster that serves the simulated model, or the scripted one.
    pub(crate) async fn start(topology: Topology<'_>) -> Self {
        let script = topology.script.map(|text| {
            let file = tempfile::NamedTempFile::new().expect("a temporary file");
            std::fs::write(file.path(), text).expect("a temporary file is writable");
            file
        });
        let (source, model) = match &script {
            None => (
                "simulated".to_owned(),
                ModelLocation::Simulated {
                    step_us: topology.step_us,
                },
            ),
            Some(file) => (
                format!("scripted:{}", file.path().display()),
                ModelLocation::Script(file.path().to_owned()),
            ),
        };
        let Topology {
            workers, more, context, ..
        } = topology;
        let text = format!(
            "name: sandbox\nmodel: {{ source: \"{source}\", served_names: [m], context: {context} }}\n{more}roles:\n  \
             tokenizer:\n  router:\n{workers}  cache:\n"
        );
        let resolved = match Document::read(&text, "sandbox.yaml").resolve(&Catalogue::shipped()) {
            Ok(resolved) => resolved,
            Err(problems) => panic!("{problems}\n{text}"),
        };
        Self::start_resolved(resolved, model, script).await
    }

    /// Starts the shipped topology of that name; muse-nano stands in for models that are not here.
    pub(crate) async fn shipped(name: &str) -> Self {
        let text = cluster_topologies::catalogue::shipped_topology(name).expect("a shipped topology");
        Self::emulated(name, text).await
    }

    /// The same for the text of a topology, which may extend shipped ones.
    pub(crate) async fn emulated(name: &str, text: &str) -> Self {
        let base = |base: &str| cluster_topologies::catalogue::shipped_topology(base).map(str::to_owned);
        let resolved = Document::read_with(text, name, &base).resolve(&Catalogue::shipped());
        Self::start_resolved(
            resolved.unwrap_or_else(|problems| panic!("{problems}")),
            ModelLocation::Weights(crate::muse::model_folder()),
            None,
        )
        .await
    }

    async fn start_resolved(topology: Resolved, model: ModelLocation, script: Option<tempfile::NamedTempFile>) -> Self {
        let options = Options {
            topology,
            model,
            port: Some(0),
            api: SocketAddr::from(([127, 0, 0, 1], 0)),
            traces: cluster_telemetry::init_for_tests().traces().clone(),
            entropy: Entropy::from_system(),
        };
        let running = start(options).await.expect("the cluster starts");
        let address = running.endpoint();
        Self {
            running,
            address,
            _script: script,
        }
    }

    /// The name clients ask for.
    pub(crate) fn model(&self) -> String {
        self.running.plan().model.served_names[0].clone()
    }

    /// Sends a request and returns the answer's head; the body is read as it comes.
    pub(crate) async fn send(&self, path: &str, body: Vec<u8>) -> Response<Incoming> {
        let stream = TcpStream::connect(self.address).await.expect("the endpoint listens");
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.expect("it speaks HTTP");
        tokio::spawn(connection);
        let request = Request::post(path)
            .header("host", "cluster")
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body)))
            .expect("a request of constants is valid");
        timeout(FAR_TOO_LONG, sender.send_request(request))
            .await
            .expect("an answer comes")
            .expect("it is HTTP")
    }

    /// A whole answer: its status and JSON.
    pub(crate) async fn post(&self, path: &str, body: &Value) -> (StatusCode, Value) {
        let response = self.send(path, serde_json::to_vec(body).expect("JSON")).await;
        let status = response.status();
        let bytes = timeout(FAR_TOO_LONG, response.into_body().collect())
            .await
            .expect("the answer ends");
        let bytes = bytes.expect("the answer is whole").to_bytes();
        let value = serde_json::from_slice(&bytes).unwrap_or_else(|_| panic!("{:?} is not JSON", bytes));
        (status, value)
    }

    /// The text of a completion that must succeed.
    pub(crate) async fn complete(&self, prompt: &str, extra: &Value) -> Value {
        let (status, answer) = self.post("/v1/completions", &completion(prompt, extra)).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        answer
    }

    /// Starts a streamed completion.
    pub(crate) async fn stream(&self, path: &str, body: &Value) -> Events {
        let mut body = body.clone();
        body["stream"] = json!(true);
        let response = self.send(path, serde_json::to_vec(&body).expect("JSON")).await;
        assert_eq!(
            response.status(),
            StatusCode::OK,
            "{:?}",
            response.into_body().collect().await
        );
        Events {
            body: response.into_body(),
            buffer: Vec::new(),
        }
    }

    /// The value of a metric without labels.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let page = self.running.host().metrics.encode();
        let value = page
            .lines()
            .find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        value.unwrap_or_else(|| panic!("no metric {name} in\n{page}"))
    }

    /// Waits until the board shows `condition`.
    pub(crate) async fn wait_for(&self, what: &str, condition: impl Fn(ActorPath, &Instance) -> bool) {
        let board = self.running.board().clone();
        let all_meet = board.wait_for(|all| all.iter().all(|(path, instance)| condition(*path, instance)));
        if timeout(FAR_TOO_LONG, all_meet).await.is_err() {
            panic!("never {what}: {:#?}", board.snapshot());
        }
    }

    /// Waits until no request runs, waits or holds a block anywhere.
    pub(crate) async fn wait_for_base_line(&self) {
        let idle = |_, instance: &Instance| {
            let load = instance.load;
            load.running == 0 && load.waiting == 0 && load.blocks_used == 0
        };
        self.wait_for("back at the base line", idle).await;
    }

    /// Waits until the life of `path` that follows `restarts` restarts serves.
    pub(crate) async fn wait_for_restart(&self, path: ActorPath, restarts: u32) {
        let serves = move |other, instance: &Instance| {
            other != path || instance.state == cluster_roles::State::Ready && instance.restarts >= restarts
        };
        self.wait_for("restarted", serves).await;
    }

    /// Ends the cluster in order.
    pub(crate) async fn stop(self) {
        timeout(FAR_TOO_LONG, self.running.shutdown(FAR_TOO_LONG))
            .await
            .expect("the cluster stops");
    }
}

/// The body of a greedy completion, changed by `extra`.
pub(crate) fn completion(prompt: &str, extra: &Value) -> Value {
    let mut body = json!({"model": "m", "prompt": prompt, "max_tokens": 32, "temperature": 0, "ignore_eos": true});
    for (name, value) in extra.as_object().into_iter().flatten() {
        body[name] = value.clone();
    }
    body
}

/// The events of a streamed answer.
pub(crate) struct Events {
    body: Incoming,
    buffer: Vec<u8>,
}

impl Events {
    /// The next event's data; none at the end of the stream.
    pub(crate) async fn next(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.buffer.windows(2).position(|pair| pair == b"\n\n") {
                let event: Vec<u8> = self.buffer.drain(..end + 2).collect();
                let event = String::from_utf8(event).expect("events are UTF-8");
                match event.trim_end().strip_prefix("data: ") {
                    Some(data) => return Some(data.to_owned()),
                    None => continue,
                }
            }
            let frame = timeout(FAR_TOO_LONG, self.body.frame())
                .await
                .expect("the stream goes on")?;
            if let Ok(data) = frame.expect("the stream is not cut").into_data() {
                self.buffer.extend_from_slice(&data);
            }
        }
    }

    /// Reads to the end: the text, the finish reason, and the error event if there is one.
    pub(crate) async fn rest(mut self) -> Ended {
        let mut ended = Ended::default();
        while let Some(data) = self.next().await {
            ended.take(&data);
        }
        ended
    }
}

/// What a stream came to.
#[derive(Default, Debug, PartialEq)]
pub(crate) struct Ended {
    pub(crate) text: String,
    pub(crate) finish: Vec<String>,
    pub(crate) error: Option<Value>,
    pub(crate) done: bool,
}

impl Ended {
    fn take(&mut self, data: &str) {
        if data == "[DONE]" {
            self.done = true;
            return;
        }
        let event: Value = serde_json::from_str(data).expect("events are JSON");
        if !event["error"].is_null() {
            self.error = Some(event["error"].clone());
        }
        for choice in event["choices"].as_array().into_iter().flatten() {
            let text = choice["text"].as_str().or(choice["delta"]["content"].as_str());
            self.text.push_str(text.unwrap_or_default());
            self.finish.extend(choice["finish_reason"].as_str().map(str::to_owned));
        }
    }
}

pub(crate) const DECODE: ActorPath = ActorPath::new(Role::Decode, 0);
