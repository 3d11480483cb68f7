use super::*;

#[test]
fn the_tail_is_the_last_lines() {
    assert_eq!(tail("a\nb\nc\n", 2), "b\nc");
    assert_eq!(tail("a\n", 2), "a");
    assert_eq!(tail("", 2), "");
}
