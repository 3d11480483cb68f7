//! Bringing a cluster up and down, with the simulated model.

use std::{
    io::{BufRead, BufReader, Read},
    net::TcpListener,
    process::{Child, Command, Stdio},
};

use crate::program::Home;

const TOPOLOGY: &str = "name: mine\nmodel: { source: simulated }
roles: { tokenizer: , router: , decode: { folds: [prefill] } }\n";

/// A test that fails must not leave a cluster running.
struct StopAtTheEnd<'a>(&'a Home);

impl Drop for StopAtTheEnd<'_> {
    fn drop(&mut self) {
        self.0.cluster(&["down", "mine", "--grace", "0"]);
    }
}

/// The same for one in the foreground.
struct EndAtTheEnd(Child);

impl Drop for EndAtTheEnd {
    fn drop(&mut self) {
        // It has usually ended already.
        let _ = self.0.kill();
    }
}

#[test]
fn detached_it_is_ready_at_once_and_ends_when_told() {
    let home = Home::new();
    home.write("mine.yaml", TOPOLOGY);
    let _stop = StopAtTheEnd(&home);
    let up = home.cluster(&["up", "mine.yaml", "--port", "0", "--detach"]).ok();
    assert!(up.contains("simulated is served at http://127.0.0.1:"), "{up}");
    assert!(up.contains("'cluster down mine' stops it."), "{up}");

    let status: serde_json::Value = serde_json::from_str(&home.cluster(&["status", "--json"]).ok()).unwrap();
    assert_eq!(status["ready"], true, "{status}");
    let again = home.cluster(&["up", "mine.yaml", "--port", "0"]).failed(1);
    let pid = status["instances"][0]["pid"].to_string();
    assert!(
        again.starts_with(&format!("error: a cluster 'mine' already runs in process {pid}\n")),
        "{again}"
    );

    assert_eq!(
        home.cluster(&["down"]).ok(),
        "mine stopped, 0 requests were in flight\n"
    );
    assert!(
        home.cluster(&["status"])
            .failed(1)
            .starts_with("error: no cluster runs")
    );
}

#[test]
fn in_the_foreground_it_drains_on_both_signals_and_exits_well() {
    let home = Home::new();
    home.write("mine.yaml", TOPOLOGY);
    for signal in ["-INT", "-TERM"] {
        let spawned = home
            .command(&["up", "mine.yaml", "--port", "0"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let EndAtTheEnd(child) = &mut EndAtTheEnd(spawned.unwrap());
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut banner = String::new();
        while !banner.contains("Ctrl-C stops it.\n") {
            assert!(out.read_line(&mut banner).unwrap() > 0, "it ended: {banner}");
        }
        let killed = Command::new("kill")
            .args([signal, &child.id().to_string()])
            .status()
            .unwrap();
        assert!(killed.success());
        let mut rest = String::new();
        out.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "stopping: requests in flight have 30s\nstopped\n");
        assert_eq!(child.wait().unwrap().code(), Some(0));
    }
}

#[test]
fn a_port_that_is_taken_is_named_also_from_the_background() {
    let home = Home::new();
    home.write("mine.yaml", TOPOLOGY);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let _holder = TcpListener::bind(("127.0.0.1", taken)).unwrap();
    let taken = taken.to_string();
    let expected = format!("error: cannot listen on 127.0.0.1:{taken}: ");
    let front = home.cluster(&["up", "mine.yaml", "--port", &taken]).failed(1);
    assert!(front.starts_with(&expected), "{front}");

    let back = home
        .cluster(&["up", "mine.yaml", "--port", &taken, "--detach"])
        .failed(1);
    assert!(
        back.starts_with("error: the cluster did not come up (exit status: 1); the end of "),
        "{back}"
    );
    assert!(back.contains(&expected), "{back}");
}

#[test]
fn what_cannot_be_brought_up_is_refused_with_its_place() {
    let home = Home::new();
    home.write(
        "mine.yaml",
        TOPOLOGY.replace("name: mine", "name: mine\nnodes: [{ name: a }, { name: b }]"),
    );
    let err = home.cluster(&["up", "mine.yaml"]).failed(2);
    assert!(
        err.starts_with("mine.yaml:2:1: not-supported-yet: several nodes"),
        "{err}"
    );

    home.write("mine.yaml", TOPOLOGY.replace("simulated", "./absent.gguf"));
    let err = home.cluster(&["up", "mine.yaml"]).failed(2);
    assert!(
        err.starts_with("error: model.source: there is no ./absent.gguf\n"),
        "{err}"
    );
}

#[test]
fn a_plan_is_shown_without_fetching_anything() {
    let home = Home::new();
    let text = home.cluster(&["plan", "local"]).ok();
    assert!(text.contains("decode.0") && text.contains("tokenizer.0"), "{text}");
    let plan: serde_json::Value = serde_json::from_str(&home.cluster(&["plan", "local", "--json"]).ok()).unwrap();
    assert_eq!((&plan["topology"], &plan["generation"]), (&"local".into(), &1.into()));
    assert!(!home.path(".cache").exists());

    home.write("mine.yaml", TOPOLOGY);
    assert!(home.cluster(&["plan", "mine.yaml"]).ok().contains("decode.0"));
}
