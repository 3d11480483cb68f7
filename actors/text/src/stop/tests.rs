use proptest::prelude::*;

use super::*;

/// The answer by definition: the stop that ends first, of those the longest.
fn by_definition(text: &str, stops: &[String]) -> (String, bool) {
    for end in (0..=text.len()).filter(|end| text.is_char_boundary(*end)) {
        let found = stops
            .iter()
            .filter(|stop| !stop.is_empty() && text[..end].ends_with(stop.as_str()));
        if let Some(stop) = found.max_by_key(|stop| stop.len()) {
            return (text[..end - stop.len()].to_owned(), true);
        }
    }
    (text.to_owned(), false)
}

/// The longest end of `text` that begins a stop.
fn held_by_definition(text: &str, stops: &[String]) -> usize {
    let begins = |held: &str| stops.iter().any(|stop| stop.starts_with(held));
    let starts = text.char_indices().map(|(start, _)| start);
    starts
        .filter(|start| begins(&text[*start..]))
        .map(|start| text.len() - start)
        .max()
        .unwrap_or(0)
}

fn run(pieces: &[&str], stops: &[String]) -> (String, bool) {
    let mut matcher = StopMatcher::new(stops);
    let mut text = String::new();
    for piece in pieces {
        let pushed = matcher.push(piece);
        text += &pushed.text;
        if pushed.stopped {
            return (text, true);
        }
    }
    (text + &matcher.finish(), false)
}

proptest! {
    #[test]
    fn cutting_anywhere_changes_nothing(
        characters in prop::collection::vec("[abé]", 0..24),
        stops in prop::collection::vec("[abé]{0,4}", 0..5),
        cuts in prop::collection::vec(any::<bool>(), 24),
    ) {
        let text = characters.concat();
        let expected = by_definition(&text, &stops);
        prop_assert_eq!(run(&[&text], &stops), expected.clone());
        let mut pieces = vec![String::new()];
        for (character, cut) in characters.iter().zip(&cuts) {
            if *cut {
                pieces.push(String::new());
            }
            pieces.last_mut().unwrap().push_str(character);
        }
        let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
        prop_assert_eq!(run(&pieces, &stops), expected);
    }

    #[test]
    fn no_more_is_held_than_may_become_a_stop(
        characters in prop::collection::vec("[abé]", 0..24), stops in prop::collection::vec("[abé]{1,4}", 1..5),
    ) {
        let mut matcher = StopMatcher::new(&stops);
        let (mut given, mut taken) = (String::new(), 0);
        for character in characters {
            given += &character;
            let pushed = matcher.push(&character);
            if pushed.stopped {
                break;
            }
            taken += pushed.text.len();
            prop_assert_eq!(given.len() - taken, held_by_definition(&given, &stops));
        }
    }
}

#[test]
fn a_stop_over_pieces_is_found_and_dropped() {
    let mut matcher = StopMatcher::new(&["own fox"]);
    assert_eq!(matcher.push("The quick br").text, "The quick br");
    assert_eq!(matcher.push("own f"), Pushed::default());
    let end = Pushed {
        text: String::new(),
        stopped: true,
    };
    assert_eq!(matcher.push("ox jumps"), end);
    assert_eq!(matcher.push("over"), end);
    assert_eq!(matcher.finish(), "");
}

#[test]
fn held_text_is_released_at_the_end() {
    let mut matcher = StopMatcher::new(&["own fox"]);
    assert_eq!(matcher.push("please own fo").text, "please ");
    assert_eq!(matcher.finish(), "own fo");
}

#[test]
fn without_stops_all_text_passes() {
    let mut matcher = StopMatcher::new::<&str>(&[]);
    assert_eq!(matcher.push("anything").text, "anything");
    assert_eq!(matcher.finish(), "");
    assert_eq!(StopMatcher::new(&[""]).push("a").text, "a");
}
