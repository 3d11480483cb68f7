use super::*;

fn lines_of(total: Option<u64>, positions: &[u64]) -> String {
    let lines = Lines::new(Vec::new());
    lines.start("downloading a", total);
    positions.iter().for_each(|bytes| lines.position(*bytes));
    lines.finish();
    let out = lines.state.into_inner().unwrap().out;
    String::from_utf8(out).unwrap()
}

#[test]
fn a_line_for_each_tenth_however_often_it_moves() {
    let positions: Vec<u64> = (0..=1000).collect();
    let text = lines_of(Some(1000), &positions);
    let expected = "downloading a (1000 B)
downloading a: 100 B of 1000 B
downloading a: 200 B of 1000 B
downloading a: 300 B of 1000 B
downloading a: 400 B of 1000 B
downloading a: 500 B of 1000 B
downloading a: 600 B of 1000 B
downloading a: 700 B of 1000 B
downloading a: 800 B of 1000 B
downloading a: 900 B of 1000 B
downloading a: 1000 B of 1000 B
";
    assert_eq!(text, expected);
}

#[test]
fn an_unknown_length_and_an_empty_file_are_printed_too() {
    assert_eq!(
        lines_of(None, &[17 << 20, 18 << 20]),
        "downloading a\ndownloading a: 17.0 MiB\ndownloading a: 18.0 MiB\n"
    );
    assert_eq!(lines_of(None, &[17 << 20]), "downloading a\ndownloading a: 17.0 MiB\n");
    assert_eq!(
        lines_of(Some(0), &[0]),
        "downloading a (0 B)\ndownloading a: 0 B of 0 B\n"
    );
}

#[test]
fn lengths_for_people() {
    assert_eq!(human_bytes(0), "0 B");
    assert_eq!(human_bytes(1023), "1023 B");
    assert_eq!(human_bytes(98_362_432), "93.8 MiB");
    assert_eq!(human_bytes(u64::MAX), "16777216.0 TiB");
}
