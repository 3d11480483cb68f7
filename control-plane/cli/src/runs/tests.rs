use super::*;

fn run(name: &str) -> Run {
    Run {
        name: name.into(),
        pid: process::id(),
        api: "127.0.0.1:1".into(),
        endpoint: "http://127.0.0.1:2".into(),
        started_unix_s: 3,
    }
}

#[test]
fn what_runs_is_listed_until_it_ends() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::new(&folder.path().join("state"));
    assert_eq!(runs.list(), []);
    let b = runs.claim("b").unwrap();
    assert_eq!(runs.list(), []);
    b.publish(&run("b")).unwrap();
    let a = runs.claim("a").unwrap();
    a.publish(&run("a")).unwrap();
    assert_eq!(runs.list(), [run("a"), run("b")]);
    drop(b);
    assert_eq!(runs.list(), [run("a")]);
    assert_eq!(runs.find("a"), Some(run("a")));
    assert_eq!(runs.find("b"), None);
}

#[test]
fn a_name_is_taken_once() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::new(folder.path());
    let claim = runs.claim("a").unwrap();
    claim.publish(&run("a")).unwrap();
    let failure = runs.claim("a").unwrap_err().to_string();
    let expected = format!("error: a cluster 'a' already runs in process {}\n", process::id());
    assert!(failure.starts_with(&expected), "{failure}");
    drop(claim);
    runs.claim("a").unwrap();
}

#[test]
fn what_a_dead_process_left_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let record = folder.path().join("a.json");
    fs::write(&record, serde_json::to_vec(&run("a")).unwrap()).unwrap();
    let runs = Runs::new(folder.path());
    assert_eq!(runs.list(), []);
    assert!(!record.exists());
}
