use super::*;

#[test]
fn the_reason_is_the_error_lines_or_the_last_line() {
    let log = "WARNING: Retrying\nERROR: Could not find a version\nERROR: No matching distribution found for a==1\n\n";
    assert_eq!(
        reason_in(log),
        "pip: Could not find a version; No matching distribution found for a==1"
    );
    assert_eq!(reason_in("Traceback\nOSError: broken\n"), "pip: OSError: broken");
    assert_eq!(reason_in("\n"), "pip failed without a word");
}
