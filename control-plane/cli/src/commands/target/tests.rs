use super::*;

fn run(name: &str) -> Run {
    Run {
        name: name.into(),
        pid: 1,
        api: "127.0.0.1:1".into(),
        endpoint: "http://127.0.0.1:2".into(),
        started_unix_s: 3,
    }
}

#[test]
fn the_only_one_needs_no_name() {
    assert_eq!(choose(None, vec![run("a")]).unwrap(), run("a"));
    assert_eq!(choose(Some("b"), vec![run("a"), run("b")]).unwrap(), run("b"));
}

#[test]
fn what_cannot_be_chosen_is_told_apart() {
    let message = |name, runs| choose(name, runs).unwrap_err().to_string();
    assert!(message(None, vec![]).starts_with("error: no cluster runs on this machine\n"));
    assert_eq!(
        message(None, vec![run("a"), run("b")]),
        "error: several clusters run here; name one of a, b"
    );
    assert_eq!(
        message(Some("c"), vec![run("a")]),
        "error: no cluster 'c' runs on this machine\n  help: running here: a"
    );
    assert_eq!(
        message(Some("c"), vec![]),
        "error: no cluster 'c' runs on this machine\n  help: running here: none"
    );
}
