//! `tests/plans/NAME.yaml` and, beside it, `NAME.expected`.

use cluster_plan::render;
use cluster_topologies::catalogue::shipped_topology;

use super::{laptop, planned, refusal, two_machines};

macro_rules! expected {
    ($name:literal) => {
        include_str!(concat!("../plans/", $name, ".expected"))
    };
}

macro_rules! topology {
    ($name:literal) => {
        include_str!(concat!("../plans/", $name, ".yaml"))
    };
}

#[track_caller]
fn assert_text(text: &str, expected: &str) {
    assert!(text == expected, "the text is\n{text}--- but should be\n{expected}");
}

#[test]
fn local() {
    let plan = planned(shipped_topology("local").unwrap(), &laptop(), None);
    assert_text(&render(&plan), expected!("local"));
}

#[test]
fn local_pd() {
    let plan = planned(shipped_topology("local-pd").unwrap(), &laptop(), None);
    assert_text(&render(&plan), expected!("local-pd"));
}

#[test]
fn two_nodes() {
    let plan = planned(topology!("two-nodes"), &two_machines(), None);
    assert_text(&render(&plan), expected!("two-nodes"));
}

#[test]
fn everything_that_does_not_fit_is_reported_with_its_line() {
    assert_text(&refusal(topology!("too-much"), &laptop()), expected!("too-much"));
}

#[test]
fn a_node_without_a_machine_says_what_each_machine_lacks() {
    assert_text(
        &refusal(topology!("no-machine"), &two_machines()),
        expected!("no-machine"),
    );
}
