//! Plans that follow plans.

use cluster_plan::{Plan, diff, render_diff};
use cluster_topologies::catalogue::shipped_topology;

use super::{laptop, planned, two_machines};

const TWO_NODES: &str = include_str!("../plans/two-nodes.yaml");

fn local_pd() -> &'static str {
    shipped_topology("local-pd").expect("the file is shipped")
}

#[test]
fn applying_a_file_twice_changes_nothing() {
    for (text, inventory) in [(local_pd(), laptop()), (TWO_NODES, two_machines())] {
        let first = planned(text, &inventory, None);
        let second = planned(text, &inventory, Some(&first));
        assert_eq!(first, second);
        assert!(diff(Some(&first), Some(&second)).is_empty());
    }
}

#[test]
fn generations_count_up_and_know_their_parent() {
    let first = planned(local_pd(), &laptop(), None);
    assert_eq!((first.generation, first.parent), (1, None));
    let text = local_pd().replace("  decode:\n", "  decode: { replicas: 2 }\n");
    let second = planned(&text, &laptop(), Some(&first));
    assert_eq!((second.generation, second.parent), (2, Some(1)));
    let third = planned(local_pd(), &laptop(), Some(&second));
    assert_eq!((third.generation, third.parent), (3, Some(2)));
}

#[test]
fn instances_stay_where_they_are() {
    let first = planned(TWO_NODES, &two_machines(), None);
    let text = TWO_NODES.replace("decode: { replicas: 2 }", "decode: { replicas: 3 }");
    let second = planned(&text, &two_machines(), Some(&first));
    for instance in &first.instances {
        assert_eq!(
            second.instance(instance.path).unwrap().node,
            instance.node,
            "{}",
            instance.path
        );
    }
}

#[test]
fn a_plan_survives_being_written_and_read() {
    let plan = planned(TWO_NODES, &two_machines(), None);
    let json = serde_json::to_string(&plan).unwrap();
    assert_eq!(serde_json::from_str::<Plan>(&json).unwrap(), plan);
}

#[test]
fn starting_is_the_difference_from_nothing_and_stopping_runs_backwards() {
    let plan = planned(local_pd(), &laptop(), None);
    let start = diff(None, Some(&plan));
    let stop = diff(Some(&plan), None);
    let order: Vec<_> = plan.instances.iter().map(|instance| instance.path).collect();
    assert_eq!(start.added, order);
    assert_eq!(stop.removed, order.into_iter().rev().collect::<Vec<_>>());
    assert!(start.removed.is_empty() && stop.added.is_empty());
}

#[test]
fn a_difference_names_each_setting_that_changes() {
    let first = planned(local_pd(), &laptop(), None);
    let text = local_pd()
        .replace("  decode:\n", "  decode: { replicas: 2, running_max: 8, threads: 1 }\n")
        .replace("port: 8000, policy: kv-aware", "port: 8080, policy: round-robin")
        .replace("  tiers: [{ host: 256MiB }]\n", "")
        .replace("  cache:\n", "");
    let second = planned(&text, &laptop(), Some(&first));
    let expected = "\
~ endpoint: 127.0.0.1:8000 -> 127.0.0.1:8080
- cache.0
~ prefill.0  offload: true -> false
~ decode.0  running_max: 32 -> 8, offload: true -> false
~ router.0  policy: \"kv-aware\" -> \"round-robin\"
+ decode.1
  tokenizer.0
";
    assert_eq!(render_diff(&diff(Some(&first), Some(&second))), expected);
}

#[test]
fn another_model_replaces_every_instance() {
    let first = planned(local_pd(), &laptop(), None);
    let text = local_pd().replace("smollm2-135m-instruct", "simulated");
    let second = planned(&text, &laptop(), Some(&first));
    let diff = diff(Some(&first), Some(&second));
    assert!(diff.kept.is_empty());
    assert_eq!(diff.changed.len(), second.instances.len());
    assert!(
        diff.changed
            .iter()
            .all(|change| change.what[0].starts_with("model: smollm2"))
    );
}
