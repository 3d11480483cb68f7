use super::*;

fn pieces<'a>(finder: &Finder, text: &'a str) -> Vec<(&'a str, Option<u32>)> {
    finder
        .cut(text)
        .into_iter()
        .map(|stretch| (&text[stretch.range], stretch.token))
        .collect()
}

#[test]
fn the_longest_token_at_the_leftmost_place_is_found() {
    let finder = Finder::new(vec![Added::plain(1, "<a", true), Added::plain(2, "<a>", true)]).unwrap();
    let expected = vec![("x", None), ("<a>", Some(2)), ("<a", Some(1)), (" y", None)];
    assert_eq!(pieces(&finder, "x<a><a y"), expected);
    assert_eq!(pieces(&finder, ""), vec![]);
}

#[test]
fn flags_swallow_blanks_and_respect_words() {
    let strip = Added {
        lstrip: true,
        rstrip: true,
        ..Added::plain(1, "<m>", true)
    };
    let word = Added {
        single_word: true,
        ..Added::plain(2, "cat", false)
    };
    let finder = Finder::new(vec![strip, word]).unwrap();
    let expected = vec![("a", None), (" <m>\n ", Some(1)), ("<m> ", Some(1)), ("b", None)];
    assert_eq!(pieces(&finder, "a <m>\n <m> b"), expected);
    let expected = vec![("concat ", None), ("cat", Some(2)), (" cat_", None)];
    assert_eq!(pieces(&finder, "concat cat cat_"), expected);
}
