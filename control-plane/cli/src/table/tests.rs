use super::*;

#[test]
fn columns_are_as_wide_as_their_widest_cell() {
    let rows = [
        vec!["decode.0".into(), "ready".into(), "-".into()],
        vec!["tokenizer.0".into(), "…".into(), String::new()],
    ];
    let expected = "
INSTANCE     STATE  EXIT
decode.0     ready  -
tokenizer.0  …
";
    assert_eq!(table(&["INSTANCE", "STATE", "EXIT"], &rows), expected.trim_start());
}

#[test]
fn durations_for_people() {
    let shown = [999, 59_999, 60_000, 3_599_000, 3_600_000, 86_399_000, 90_000_000].map(duration);
    assert_eq!(shown, ["0s", "59s", "1m00s", "59m59s", "1h00m", "23h59m", "1d01h"]);
}
