use super::*;

fn controls() -> Controls {
    Controls::new(["<|end|>", "<|end_of_text|>", ""]).unwrap()
}

fn hidden(text: &str) -> String {
    let mut escapes = Escapes::default();
    let hidden = escapes.hide(&controls(), text).unwrap();
    assert_eq!(escapes.restore(&hidden), text);
    hidden.chars().map(|c| if is_stand_in(c) { '#' } else { c }).collect()
}

#[test]
fn only_spellings_of_control_tokens_are_hidden() {
    assert_eq!(hidden("plain <b> | text>"), "plain <b> | text>");
    assert_eq!(hidden("a<|end|>b<|END_of_text|>"), "a#b#");
    assert_eq!(hidden("<|end<|end|>|>"), "<|end#|>");
}

#[test]
fn a_beginning_at_the_end_is_hidden() {
    assert_eq!(hidden("a <|en"), "a #");
    assert_eq!(hidden("a <"), "a #");
    assert_eq!(hidden("<|end_of_text|"), "#");
    assert_eq!(hidden("é<|x"), "é<|x");
}

#[test]
fn private_characters_of_users_come_back() {
    assert_eq!(hidden("a\u{100000}b\u{10ffff}"), "a#b#");
    let mut escapes = Escapes::default();
    let first = escapes.hide(&controls(), "\u{100001}").unwrap();
    let second = escapes.hide(&controls(), "<|end|>\u{100000}").unwrap();
    assert_eq!(escapes.restore(&(first + &second)), "\u{100001}<|end|>\u{100000}");
}

#[test]
fn the_mark_is_told_from_all_text() {
    let mut escapes = Escapes::default();
    let mark = escapes.mark().unwrap();
    let hidden = escapes.hide(&controls(), "\u{100000}").unwrap();
    assert!(!hidden.contains(mark));
    assert_eq!(escapes.restore(&format!("{hidden}{mark}")), "\u{100000}");
}

#[test]
fn too_many_private_characters_are_refused() {
    let all: String = (0x10_0000..=0x10_ffff).filter_map(char::from_u32).collect();
    let mut escapes = Escapes::default();
    assert!(escapes.hide(&controls(), &all).is_ok());
    assert_eq!(
        escapes.hide(&controls(), "<|end|>").unwrap_err().param.as_deref(),
        Some("messages")
    );
}

#[test]
fn without_control_tokens_nothing_is_hidden() {
    let controls = Controls::new([]).unwrap();
    assert_eq!(Escapes::default().hide(&controls, "<|end|>"), Ok("<|end|>".to_owned()));
}
