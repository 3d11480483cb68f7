use cluster_telemetry::Metrics;

use super::*;

fn report(steps: u64, lookup_tokens: u64) -> EngineReport {
    EngineReport {
        load: SamplePoint {
            steps,
            running: 3,
            ..SamplePoint::default()
        },
        lookup_tokens,
        ..EngineReport::default()
    }
}

#[test]
fn counters_go_on_over_lives() {
    let metrics = Metrics::new().instance("decode.0");
    for _ in 0..2 {
        let mut shown = Shown {
            metrics: metrics.clone(),
            last: EngineReport::default(),
        };
        shown.count(report(10, 100));
        shown.count(report(15, 100));
        shown.count(report(15, 130));
    }
    assert_eq!(
        (metrics.steps.get(), metrics.prefix_lookup_tokens.get()),
        (30, 260),
        "two lives of 15 steps and 130 tokens"
    );
}

#[test]
fn a_dead_worker_shows_nothing() {
    let metrics = Metrics::new().instance("decode.0");
    set_gauges(&metrics, report(1, 1).load);
    assert_eq!(metrics.running.get(), 3);
    set_gauges(&metrics, SamplePoint::default());
    assert_eq!(metrics.running.get(), 0);
}
