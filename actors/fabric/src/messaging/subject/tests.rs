use proptest::prelude::*;

use super::*;

#[test]
fn patterns_match_whole_parts() {
    let table = [
        ("load.decode", "load.decode", true),
        ("load.decode", "load.decoder", false),
        ("load.*", "load.decode", true),
        ("load.*", "load", false),
        ("load.*", "load.decode.0", false),
        ("*.decode", "load.decode", true),
        ("load.>", "load.decode.0", true),
        ("load.>", "load", false),
        (">", "load", true),
        ("load.*.0", "load.decode.0", true),
        ("load.*.0", "load.decode.1", false),
    ];
    for (pattern, subject, expected) in table {
        assert_eq!(matches(pattern, subject), expected, "{pattern} on {subject}");
    }
}

#[test]
fn malformed_texts_are_told_from_subjects_and_patterns() {
    for wrong in ["", ".", "a.", ".a", "a..b", "a b", "a>"] {
        assert!(!is_subject(wrong) && !is_pattern(wrong), "{wrong:?}");
    }
    for pattern in [">", "a.>", "*", "a.*.b", "*.>"] {
        assert!(is_pattern(pattern) && !is_subject(pattern), "{pattern:?}");
    }
    for wrong in ["a.>.b", ">.a", "a*", "a.b*"] {
        assert!(!is_pattern(wrong), "{wrong:?}");
    }
    assert!(is_subject("cluster.prod.load.decode"));
    let longest = "a".repeat(SUBJECT_MAX);
    assert!(is_subject(&longest) && is_pattern(&longest));
    let longer = "a".repeat(SUBJECT_MAX + 1);
    assert!(!is_subject(&longer) && !is_pattern(&longer));
}

proptest! {
    /// Any name becomes exactly one part, and two names never the same one.
    #[test]
    fn names_become_parts(a in "\\PC{1,8}", b in "\\PC{1,8}") {
        prop_assert!(is_subject(&part(&a)) && !part(&a).contains('.'));
        prop_assert_eq!(part(&a) == part(&b), a == b);
    }
}
