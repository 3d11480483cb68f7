use cluster_messages::JsonText;

use super::*;

const TOOLS: &str = r#"[{"function": {"name": "f", "parameters": {"properties": {"s": {"type": "string"}}}}}]"#;

/// What the whole of `text` comes to, fed in the given pieces, all marks being written out.
fn read(pieces: &[&str], tools: Option<&str>, start: Option<Recipient>) -> (Vec<AnswerEvent>, u32) {
    let functions = Functions::new(tools.map(|tools| JsonText(tools.to_owned())).as_ref()).unwrap();
    let mut parser = Parser::new(Arc::new(functions), start);
    let mut written = WrittenMarks::new(|_| false);
    let mut events = Vec::new();
    let mut before = 0;
    for piece in pieces {
        let span = Span {
            before,
            last: before + 1,
        };
        before += 1;
        written.push(piece, |found| match found {
            Found::Text(text) => parser.text(text, span, &mut events),
            Found::Mark(mark) => parser.mark(mark, &mut events),
        });
    }
    let span = Span { before, last: before };
    parser.finish(&written.finish(), span, &mut events);
    (events, parser.reasoning_tokens())
}

fn whole(text: &str) -> Vec<AnswerEvent> {
    let all = read(&[text], Some(TOOLS), None).0;
    for (cut, _) in text.char_indices() {
        let (first, second) = text.split_at(cut);
        assert_eq!(merged(read(&[first, second], Some(TOOLS), None).0), all, "cut at {cut}");
    }
    let letters: Vec<&str> = text.split("").collect();
    assert_eq!(merged(read(&letters, Some(TOOLS), None).0), all);
    all
}

fn merged(events: Vec<AnswerEvent>) -> Vec<AnswerEvent> {
    let mut merged = Vec::new();
    for event in events {
        match event {
            AnswerEvent::Reasoning(text) => push_text(&mut merged, true, &text),
            AnswerEvent::Content(text) => push_text(&mut merged, false, &text),
            call @ AnswerEvent::Call(_) => merged.push(call),
        }
    }
    merged
}

fn thought(text: &str) -> AnswerEvent {
    AnswerEvent::Reasoning(text.to_owned())
}

fn content(text: &str) -> AnswerEvent {
    AnswerEvent::Content(text.to_owned())
}

fn call(arguments: &str) -> AnswerEvent {
    AnswerEvent::Call(super::super::FunctionCall {
        name: "f".to_owned(),
        arguments: JsonText(arguments.to_owned()),
    })
}

#[test]
fn words_that_look_like_the_beginning_of_a_header_are_words() {
    for text in [
        "t",
        "to",
        "to=",
        "to=to=to=",
        "tto=x y",
        "set x to=5 <|not a mark",
        "to=a<b <|message <|eot |>",
        "a < b <| c <|e",
    ] {
        let framed = format!(" to=user<|message|>{text}");
        assert_eq!(whole(&framed), [content(text)]);
        assert_eq!(whole(&format!("{framed}<|eot|>")), [content(text)]);
    }
}

#[test]
fn a_header_ends_the_body_before_it_without_a_mark() {
    assert_eq!(
        whole("to=self<|message|>a to=user<|message|>b<|message|>cto=user<|message|>d=to=nobody"),
        [thought("a "), content("b"), thought("c"), content("d=to=nobody"),]
    );
    assert_eq!(
        whole(
            "<|start|>assistant<|message|>a <|start|>assistant to=user<|message|>b<|start|>assistant to=self<|message|>c to=to=user<|message|>d="
        ),
        [thought("a "), content("b"), thought("c to="), content("d="),]
    );
}

#[test]
fn names_too_long_are_text() {
    let long = "x".repeat(NAME_CHARS_MAX);
    let text = format!("to=self<|message|>to={long}<|message|>b");
    assert_eq!(whole(&text), [thought(&format!("to={long}b"))]);
}

#[test]
fn other_speakers_and_unfinished_headers_say_nothing() {
    assert_eq!(
        whole("to=user<|message|>a<|eot|><|start|>tool f<|message|>b<|eot|>"),
        [content("a")]
    );
    assert_eq!(whole("to=user<|message|>a<|eot|> and more"), [content("a")]);
    assert_eq!(
        whole("to=user<|message|>a<|eom|><|start|>assistant to=us"),
        [content("a")]
    );
    assert_eq!(
        whole("to=developer<|message|>a<|eom|> to=user<|message|>b"),
        [content("b")]
    );
    for cut in [
        " t",
        " to",
        " to=",
        " to=self",
        "<|start|>assist",
        "<|start|>assistant to=self",
        " to=self<|mess",
    ] {
        assert_eq!(whole(cut), []);
    }
}

#[test]
fn text_without_a_header_is_content() {
    for text in ["plain words only", "  \n", " plain <b> to=x words\n\n", "to=x y"] {
        assert_eq!(whole(text), [content(text)]);
    }
    assert_eq!(whole("plain<|eot|>words"), [content("plainwords")]);
    assert_eq!(whole("plain to=self<|message|>x"), [content("plain "), thought("x")]);
}

#[test]
fn calls_come_whole_or_not_at_all() {
    let block = |body: &str| format!("<atem:invoke name=\"f\">{body}</atem:invoke>");
    let one = block("\n<atem:parameter name=\"s\">a </atem:paramete \" ä</atem:parameter>\n");
    let text = format!(
        "to=f<|message|>junk{one} junk {}<|eom|> to=f<|message|>{}",
        block(""),
        &one[..one.len() - 1]
    );
    assert_eq!(whole(&text), [call(r#"{"s":"a </atem:paramete \" ä"}"#), call("{}")]);
    let unclosed = block("<atem:parameter name=\"s\">a<atem:parameter name=\"t");
    assert_eq!(whole(&format!("to=f<|message|>{unclosed}")), [call("{}")]);
    assert_eq!(whole("to=f<|message|></atem:invoke><|eot|>"), []);
}

#[test]
fn without_functions_what_looks_like_a_call_is_content() {
    let text = "to=f<|message|><atem:invoke name=\"f\"></atem:invoke><|eot|>";
    let (events, _) = read(&[text], None, None);
    assert_eq!(events, [content("<atem:invoke name=\"f\"></atem:invoke>")]);
}

#[test]
fn an_answer_may_begin_inside_of_a_message() {
    let called = read(
        &["<atem:invoke name=\"f\">", "</atem:invoke>"],
        Some(TOOLS),
        Some(Recipient::Function),
    );
    assert_eq!(called.0, [call("{}")]);
    let continued = read(&[" to"], None, Some(Recipient::Client));
    assert_eq!(continued.0, [content(" to")]);
}

#[test]
fn tokens_of_reasoning_are_counted_without_headers_and_marks() {
    let pieces = [
        " to",
        "=self",
        "<|message|>",
        "Two ",
        "th",
        "oughts",
        "<|eom|>",
        "<|start|>",
        "assistant",
        "<|message|>",
        "t",
        "o=",
        "<|eom|>",
        " to=",
        "user",
        "<|message|>",
        "x",
        "<|eot|>",
    ];
    assert_eq!(read(&pieces, None, None).1, 5);
    let cut_header = ["<|message|>", "a", "t", "o=", "us", "er", "<|message|>", "b"];
    assert_eq!(read(&cut_header, None, None).1, 1);
    assert_eq!(read(&cut_header[..6], None, None).1, 5);
}
