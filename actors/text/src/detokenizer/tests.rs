use super::*;
use crate::vocabulary::Entry;

fn vocabulary(tokens: &[(&[u8], bool)]) -> Arc<Vocabulary> {
    let entry = |(bytes, special): &(&[u8], bool)| Entry {
        bytes: bytes.to_vec(),
        special: *special,
    };
    Arc::new(Vocabulary::new(&tokens.iter().map(entry).collect::<Vec<_>>()))
}

#[test]
fn half_a_character_is_held() {
    let vocabulary = vocabulary(&[(b"a\xf0\x9f", false), (b"\x98", false), (b"\x80b", false)]);
    let mut detokenizer = Detokenizer::new(vocabulary, true, false);
    assert_eq!(detokenizer.push(&[0]), "a");
    assert_eq!(detokenizer.push(&[1]), "");
    assert_eq!(detokenizer.push(&[2]), "😀b");
    assert_eq!(detokenizer.finish(), "");
}

#[test]
fn broken_sequences_become_one_mark_each() {
    let vocabulary = vocabulary(&[(b"\xf0\x9f", false), (b"x", false), (b"\xff\xff", false)]);
    let mut detokenizer = Detokenizer::new(vocabulary, true, false);
    assert_eq!(detokenizer.push(&[0]), "");
    assert_eq!(detokenizer.push(&[1]), "\u{fffd}x");
    assert_eq!(detokenizer.push(&[2, 0]), "\u{fffd}\u{fffd}");
    assert_eq!(detokenizer.finish(), "\u{fffd}");
    assert_eq!(detokenizer.finish(), "");
}

#[test]
fn special_tokens_show_when_asked_for() {
    let vocabulary = vocabulary(&[(b"<end>", true), (b"a", false)]);
    let text = |skips| Detokenizer::new(Arc::clone(&vocabulary), skips, false).push(&[1, 0, 99]);
    assert_eq!((text(true).as_str(), text(false).as_str()), ("a", "a<end>"));
}

#[test]
fn the_blank_that_encoding_added_is_dropped_once() {
    let vocabulary = vocabulary(&[(b" a", false), (b"<s>", true)]);
    let mut detokenizer = Detokenizer::new(vocabulary, true, true);
    assert_eq!(detokenizer.push(&[1, 0, 0]), "a a");
    assert_eq!(detokenizer.push(&[0]), " a");
}
