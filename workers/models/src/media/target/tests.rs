use super::*;

#[derive(serde::Deserialize)]
struct Recorded {
    columns: Vec<String>,
    cases: Vec<[u32; 6]>,
}

#[test]
fn all_recorded_sizes_are_hit() {
    let recorded: Recorded =
        serde_json::from_str(include_str!("../../../tests/fixtures/muse-spark-resize.json")).unwrap();
    let columns = ["height", "width", "cell", "max_tokens", "target_height", "target_width"];
    assert_eq!(recorded.columns, columns);
    assert_eq!(recorded.cases.len(), 672);
    for [height, width, cell, most, target_height, target_width] in recorded.cases {
        let [rows, columns] = cells(height, width, cell, most);
        assert_eq!(
            [rows * cell, columns * cell],
            [target_height, target_width],
            "{height} x {width} in cells of {cell}, at most {most}"
        );
    }
}

#[test]
fn no_ordinary_picture_exceeds_the_limit() {
    for height in (1..400).step_by(7) {
        for width in (1..400).step_by(11) {
            let [rows, columns] = cells(height, width, 28, 16);
            assert!(rows * columns <= 16, "{height} x {width}: {rows} x {columns}");
        }
    }
}
