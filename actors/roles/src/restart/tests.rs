use super::*;

const POLICY: Policy = Policy {
    backoff_min: Duration::from_millis(100),
    backoff_max: Duration::from_millis(500),
    restarts_max: 4,
    window: Duration::from_secs(10),
};

fn restart(ms: u64) -> Decision {
    Decision::Restart(Duration::from_millis(ms))
}

#[test]
fn waits_double_up_to_the_longest_and_then_the_failure_goes_up() {
    let mut history = History::default();
    let decisions: Vec<_> = (0..5).map(|i| history.decide(&POLICY, i * 1000)).collect();
    assert_eq!(
        decisions,
        [
            restart(100),
            restart(200),
            restart(400),
            restart(500),
            Decision::Escalate
        ]
    );
    assert_eq!(history.total(), 4);
}

#[test]
fn old_restarts_are_forgotten() {
    let mut history = History::default();
    for second in 0..4 {
        history.decide(&POLICY, second * 1000);
    }
    assert_eq!(
        history.decide(&POLICY, 10_000),
        restart(500),
        "only the first of four is forgotten"
    );
    assert_eq!(history.decide(&POLICY, 30_000), restart(100), "all are forgotten");
    assert_eq!(history.total(), 6);
}
