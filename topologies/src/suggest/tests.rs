use super::*;

const FIELDS: [&str; 5] = ["name", "model", "page_tokens", "port", "policy"];

#[test]
fn slips_find_their_word() {
    let cases = [
        ("modle", "model"),
        ("prot", "port"),
        ("page-tokens", "page_tokens"),
        ("pagetokens", "page_tokens"),
        ("Name", "name"),
        ("pol", "policy"),
        ("page", "page_tokens"),
    ];
    for (slip, word) in cases {
        assert_eq!(nearest(slip, FIELDS), Some(word), "{slip}");
    }
}

#[test]
fn other_words_find_nothing() {
    for word in ["", "x", "colour", "replicas"] {
        assert_eq!(nearest(word, FIELDS), None, "{word}");
    }
}

#[test]
fn distance_counts_single_slips() {
    let cases = [
        ("", "", 0),
        ("", "abc", 3),
        ("abc", "abc", 0),
        ("abc", "acb", 1),
        ("abcd", "abd", 1),
        ("kitten", "sitting", 3),
    ];
    for (left, right, expected) in cases {
        assert_eq!(distance(left, right), expected, "{left} {right}");
        assert_eq!(distance(right, left), expected, "{right} {left}");
    }
}
