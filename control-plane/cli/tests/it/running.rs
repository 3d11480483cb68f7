//! The commands that talk to a running cluster. The cluster is one in name only: the control-plane API, answered by a table.

use std::{fs::File, net::SocketAddr, sync::Arc, thread, time::Duration};

use async_trait::async_trait;
use cluster_api::{ControlPlane, Drain, Event, Fault, FaultKind, Instance, InstanceState, PlanView, Status, serve};
use tokio::{net::TcpListener, sync::mpsc};

use crate::program::Home;

struct Table {
    shut_down: mpsc::UnboundedSender<Duration>,
}

const SPAN: &str = r#"{"trace_id":"1","span_id":"2","parent_id":null,"name":"gateway.request","service":"cluster",
"start_unix_us":0,"end_unix_us":2500,"attributes":[],"events":[],"links":[],"error":null}"#;

#[async_trait]
impl ControlPlane for Table {
    async fn status(&self) -> Result<Status, Fault> {
        let decode = Instance {
            path: "decode.0".into(),
            node: "here".into(),
            state: InstanceState::Ready,
            ..Instance::default()
        };
        Ok(Status {
            name: "mine".into(),
            models: vec!["tiny".into()],
            endpoint: "http://127.0.0.1:8000".into(),
            ready: true,
            instances: vec![decode],
            ..Status::default()
        })
    }

    async fn plan(&self) -> Result<PlanView, Fault> {
        Ok(PlanView::default())
    }

    async fn trace(&self, request_id: &str) -> Result<String, Fault> {
        match request_id {
            "chatcmpl-1" => Ok(format!("[{SPAN}]")),
            _ => Err(Fault::new(
                FaultKind::NotFound,
                "no such request",
                "ask for a newer one",
            )),
        }
    }

    async fn events(&self, _after_sequence: u64) -> Result<Vec<Event>, Fault> {
        Ok(vec![Event {
            sequence: 1,
            at_unix_ms: 0,
            kind: "instance.ready".into(),
            subject: "decode.0".into(),
            message: "epoch 2, 1 restarts".into(),
        }])
    }

    async fn shutdown(&self, grace: Option<Duration>) -> Result<Drain, Fault> {
        let grace = grace.unwrap_or(Duration::from_secs(30));
        self.shut_down.send(grace).unwrap();
        Ok(Drain {
            in_flight: 3,
            grace_s: grace.as_secs() as u32,
        })
    }
}

/// A cluster that looks as if it ran in this process, until it is told to shut down.
struct Cluster {
    address: SocketAddr,
    thread: Option<thread::JoinHandle<Duration>>,
}

impl Cluster {
    fn start(home: &Home, name: &str) -> Self {
        let (sender, addresses) = std::sync::mpsc::channel();
        let lock = File::create(home.write(&format!(".local/state/cluster/{name}.lock"), "")).unwrap();
        lock.lock().unwrap();
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            let grace = runtime.block_on(async {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                sender.send(listener.local_addr().unwrap()).unwrap();
                let (shut_down, mut told) = mpsc::unbounded_channel();
                let (done, mut grace) = mpsc::unbounded_channel();
                let stop = async move { done.send(told.recv().await.unwrap()).unwrap() };
                serve(listener, Arc::new(Table { shut_down }), stop).await.unwrap();
                grace.recv().await.unwrap()
            });
            drop(lock);
            grace
        });
        let address = addresses.recv().unwrap();
        let record = serde_json::json!({
            "name": name, "pid": 1, "api": address.to_string(), "endpoint": "http://127.0.0.1:1", "started_unix_s": 1,
        });
        home.write(&format!(".local/state/cluster/{name}.json"), record.to_string());
        Self {
            address,
            thread: Some(thread),
        }
    }

    /// Waits for its end, and returns the grace it was given.
    fn join(mut self) -> Duration {
        self.thread.take().unwrap().join().unwrap()
    }
}

#[test]
fn without_a_cluster_every_command_says_so() {
    let home = Home::new();
    for arguments in [vec!["status"], vec!["down"], vec!["trace", "1"]] {
        let err = home.cluster(&arguments).failed(1);
        assert!(
            err.starts_with("error: no cluster runs on this machine\n  help: start one with"),
            "{err}"
        );
    }
    let err = home.cluster(&["status", "mine"]).failed(1);
    assert!(
        err.starts_with("error: no cluster 'mine' runs on this machine\n"),
        "{err}"
    );
}

#[test]
fn what_a_dead_cluster_left_is_no_cluster() {
    let home = Home::new();
    let record = r#"{"name":"mine","pid":1,"api":"127.0.0.1:1","endpoint":"http://127.0.0.1:1","started_unix_s":1}"#;
    let record = home.write(".local/state/cluster/mine.json", record);
    assert!(
        home.cluster(&["status"])
            .failed(1)
            .starts_with("error: no cluster runs")
    );
    assert!(!record.exists());
}

#[test]
fn status_trace_and_down_of_the_only_cluster() {
    let home = Home::new();
    let cluster = Cluster::start(&home, "mine");

    let table = home.cluster(&["status"]).ok();
    assert!(
        table.starts_with("mine: ready at http://127.0.0.1:8000, up 0s, generation 0\n"),
        "{table}"
    );
    assert!(table.contains("\ndecode.0  here  ready "), "{table}");
    let status: serde_json::Value = serde_json::from_str(&home.cluster(&["status", "mine", "--json"]).ok()).unwrap();
    assert_eq!(status["instances"][0]["state"], "ready");
    let elsewhere = home.cluster(&["status", "--api", &cluster.address.to_string()]).ok();
    assert_eq!(elsewhere, table);

    let waterfall = home.cluster(&["trace", "chatcmpl-1"]).ok();
    assert!(waterfall.starts_with("gateway.request │"), "{waterfall}");
    assert!(waterfall.contains("2.50 ms"), "{waterfall}");
    let spans: serde_json::Value =
        serde_json::from_str(&home.cluster(&["trace", "chatcmpl-1", "--json"]).ok()).unwrap();
    assert_eq!(spans[0]["name"], "gateway.request");
    assert_eq!(
        home.cluster(&["trace", "chatcmpl-2"]).failed(1),
        "error: no such request\n  help: ask for a newer one\n"
    );

    let events = home.cluster(&["events"]).ok();
    assert!(events.starts_with("NUMBER  AGO"), "{events}");
    assert!(
        events.ends_with("  decode.0  instance.ready  epoch 2, 1 restarts\n"),
        "{events}"
    );
    let events: serde_json::Value = serde_json::from_str(&home.cluster(&["events", "--json"]).ok()).unwrap();
    assert_eq!(events[0]["kind"], "instance.ready");

    let down = home.cluster(&["down", "--grace", "7"]).ok();
    assert_eq!(down, "mine stopped, 3 requests were in flight\n");
    assert_eq!(cluster.join(), Duration::from_secs(7));
    assert!(
        home.cluster(&["status"])
            .failed(1)
            .starts_with("error: no cluster runs")
    );
}

#[test]
fn of_several_clusters_one_must_be_named() {
    let home = Home::new();
    let clusters = ["a", "b"].map(|name| Cluster::start(&home, name));
    assert_eq!(
        home.cluster(&["status"]).failed(2),
        "error: several clusters run here; name one of a, b\n"
    );
    for (name, cluster) in ["a", "b"].into_iter().zip(clusters) {
        home.cluster(&["down", name]).ok();
        cluster.join();
    }
}

#[test]
fn a_cluster_that_does_not_answer_is_named_with_its_process() {
    let home = Home::new();
    let cluster = Cluster::start(&home, "mine");
    // Bound and closed again: nobody listens there.
    let closed = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let record = home.path(".local/state/cluster/mine.json");
    let text = std::fs::read_to_string(&record).unwrap();
    std::fs::write(&record, text.replace(&cluster.address.to_string(), &closed.to_string())).unwrap();
    assert_eq!(
        home.cluster(&["down"]).failed(1),
        format!("error: cluster 'mine' does not answer at {closed}\n  help: it runs as process 1; 'kill 1' ends it\n")
    );
    home.cluster(&["down", "--api", &cluster.address.to_string()]).ok();
    cluster.join();
}
