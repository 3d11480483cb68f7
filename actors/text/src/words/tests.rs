use serde_json::json;

use super::*;

fn words<'t>(rules: &Words, text: &'t str) -> Vec<&'t str> {
    let mut words = Vec::new();
    rules.each(text, |word| words.push(word));
    words
}

#[test]
fn the_last_blank_goes_with_the_word_behind_it() {
    let rules = Words::new(GPT2, false).unwrap();
    assert_eq!(words(&rules, "a  b \n\n c\t"), ["a", " ", " b", " \n\n", " c", "\t"]);
    assert_eq!(words(&rules, "a\n\nb"), ["a", "\n", "\n", "b"]);
    assert_eq!(words(&rules, "we'll go  "), ["we", "'ll", " go", "  "]);
    assert_eq!(words(&rules, ""), [""; 0]);
}

#[test]
fn line_ends_that_are_words_stay_whole() {
    let rules = Words::new(r" ?\p{L}+|\s*[\r\n]+|\s+(?!\S)|\s+", false).unwrap();
    assert_eq!(words(&rules, "a \n\n  b"), ["a", " \n\n", " ", " b"]);
    assert_eq!(words(&rules, "12 a"), ["12", " a"], "what no rule covers is a word");
}

#[test]
fn digits_are_cut_off_one_by_one() {
    let rules = Words::new(GPT2, true).unwrap();
    assert_eq!(words(&rules, "a 12½b"), ["a", " ", "1", "2", "½", "b"]);
}

#[test]
fn other_kinds_are_left_to_the_general_path() {
    let bytes = json!({"type": "ByteLevel", "add_prefix_space": true, "use_regex": true});
    assert!(Words::from_json(&bytes).is_none());
    let metaspace = json!({"type": "Metaspace", "replacement": "▁"});
    assert!(Words::from_json(&metaspace).is_none());
    assert!(Words::new(r"(?<!a)b|\s+(?!\S)|\s+", false).is_none());
    assert!(Words::new(r"\p{L}+|\s+", false).is_none());
}
