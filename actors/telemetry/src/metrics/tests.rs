use super::*;

#[test]
fn the_page_shows_what_was_counted() {
    let metrics = Metrics::new();
    let model = metrics.model("tiny");
    model.prompt_tokens.inc_by(31);
    model.time_to_first_token.observe(0.003);
    metrics.request_ended("tiny", "ok");
    metrics.request_ended("tiny", "overloaded");
    metrics.request_refused("overloaded");
    metrics.requests_in_flight().set(2);
    metrics.clone().instance("decode.0").blocks_used.set(12);
    metrics.actor_restarted("decode.0", "panic");
    let page = metrics.encode();
    for line in [
        "cluster_prompt_tokens_total{model=\"tiny\"} 31",
        "cluster_requests_total{model=\"tiny\",outcome=\"ok\"} 1",
        "cluster_requests_total{model=\"tiny\",outcome=\"overloaded\"} 1",
        "cluster_requests_refused_total{reason=\"overloaded\"} 1",
        "cluster_requests_in_flight 2",
        "cluster_time_to_first_token_seconds_bucket{le=\"0.004\",model=\"tiny\"} 1",
        "cluster_time_to_first_token_seconds_count{model=\"tiny\"} 1",
        "cluster_kv_blocks_used{instance=\"decode.0\"} 12",
        "cluster_actor_restarts_total{actor=\"decode.0\",reason=\"panic\"} 1",
        "# EOF",
    ] {
        assert!(page.lines().any(|found| found == line), "no line {line} in\n{page}");
    }
}

#[test]
fn handles_of_one_label_share_their_figures() {
    let metrics = Metrics::new();
    metrics.instance("decode.0").steps.inc();
    metrics.instance("decode.0").steps.inc();
    assert_eq!(metrics.instance("decode.0").steps.get(), 2);
    assert_eq!(metrics.instance("decode.1").steps.get(), 0);
}
