//! `cluster bench` with a model of a few thousand weights.

use crate::program::Home;

const MODEL: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../workers/models/tests/fixtures/llama-tiny-gguf/model.gguf"
);

#[test]
fn every_case_has_its_figure_for_people_and_for_programs() {
    let home = Home::new();
    let cases = ["--prompt", "16,32", "--batch", "1,2", "--threads", "1", "--repeat", "1"];
    let text = home.cluster(&[&["bench", MODEL], &cases[..]].concat()).ok();
    assert!(text.starts_with("model.gguf: threads 1, cores "), "{text}");
    let rows: Vec<Vec<&str>> = text
        .lines()
        .skip(3)
        .map(|line| line.split_whitespace().take(2).collect())
        .collect();
    assert_eq!(
        rows,
        [["prefill", "16"], ["prefill", "32"], ["decode", "1"], ["decode", "2"]]
    );

    let json = home.cluster(&[&["bench", MODEL, "--json"], &cases[..]].concat()).ok();
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&report["threads"], &report["repeat"]), (&1.into(), &1.into()));
    let figures = report["figures"].as_array().unwrap();
    assert_eq!(figures.len(), 4);
    for figure in figures {
        let [tokens, ms, rate] = ["tokens", "ms", "tokens_per_s"].map(|name| figure[name].as_f64().unwrap());
        assert!(
            tokens > 0.0 && (rate - tokens / ms * 1e3).abs() < 1e-6 * rate,
            "{figure}"
        );
    }
}

#[test]
fn what_cannot_be_measured_is_refused() {
    let home = Home::new();
    assert_eq!(
        home.cluster(&["bench", "./absent.gguf"]).failed(2),
        "error: there is no ./absent.gguf\n"
    );
    let err = home.cluster(&["bench", "absent"]).failed(2);
    assert!(err.starts_with("error: there is no model 'absent'\n"), "{err}");
    let err = home.cluster(&["bench", MODEL, "--batch", "0"]).failed(2);
    assert!(err.contains("--batch"), "{err}");
}
