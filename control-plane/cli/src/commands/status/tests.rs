use cluster_api::{Blocks, InstanceState};

use super::*;

#[test]
fn the_table_shows_what_there_is() {
    let decode = Instance {
        role: "decode".into(),
        path: "decode.0".into(),
        node: "local".into(),
        state: InstanceState::Ready,
        epoch: 3,
        restarts: 2,
        pid: 4711,
        steps: 123_456,
        running: 4,
        waiting: 1,
        blocks: Some(Blocks {
            used: 10,
            cached: 20,
            total: 400,
        }),
        last_exit: Some("panicked: index out of bounds".into()),
    };
    let router = Instance {
        role: "router".into(),
        path: "router.0".into(),
        node: "local".into(),
        state: InstanceState::Starting,
        epoch: 1,
        pid: 4711,
        ..Instance::default()
    };
    let status = Status {
        name: "local".into(),
        models: vec!["tiny".into(), "alias".into()],
        endpoint: "http://127.0.0.1:8000".into(),
        uptime_ms: 192_000,
        generation: 1,
        ready: true,
        instances: vec![router, decode],
        stand_ins: vec!["8 x b300 of gpu: 8 ranks on this processor".into()],
    };
    let expected = "\
local: ready at http://127.0.0.1:8000, up 3m12s, generation 1
model: tiny, alias
emulated: 8 x b300 of gpu: 8 ranks on this processor

INSTANCE  NODE   STATE     EPOCH  RESTARTS  PID   STEPS   RUNNING  WAITING  BLOCKS     LAST EXIT
router.0  local  starting  1      0         4711  0       0        0        -          -
decode.0  local  ready     3      2         4711  123456  4        1        10/20/400  panicked: index out of bounds
";
    assert_eq!(render(&status), expected);
}
