use cluster_api::InstanceState;

use super::*;

#[test]
fn the_banner_names_instances_and_endpoint() {
    let instance = |role: &str| Instance {
        role: role.into(),
        path: format!("{role}.0"),
        node: "local".into(),
        state: InstanceState::Ready,
        ..Instance::default()
    };
    let status = Status {
        models: vec!["tiny".into(), "alias".into()],
        endpoint: "http://127.0.0.1:8000".into(),
        instances: ["tokenizer", "decode"].map(instance).into(),
        ..Status::default()
    };
    let expected = "\
ROLE       INSTANCE     WHERE  STATE
tokenizer  tokenizer.0  local  ready
decode     decode.0     local  ready

tiny is served at http://127.0.0.1:8000/v1
";
    assert_eq!(ready(&status), expected);
}

#[test]
fn what_stands_in_for_what_comes_first() {
    let status = Status {
        models: vec!["big".into()],
        endpoint: "http://127.0.0.1:8000".into(),
        stand_ins: vec!["8 x b300 of gpu: 8 ranks on this processor".into(), "big: tiny".into()],
        ..Status::default()
    };
    let text = ready(&status);
    let expected = "\
EMULATION: this machine lacks what the topology declares. Standing in:
  8 x b300 of gpu: 8 ranks on this processor
  big: tiny
Answers and speeds are those of the stand-ins.

";
    assert!(text.starts_with(expected), "{text}");
}
