use super::*;

#[test]
fn control_characters_do_not_reach_the_terminal() {
    assert_eq!(printable("a\x1b[2J\u{9b}1mb\r\n\tü"), "a[2J1mb\n\tü");
}
