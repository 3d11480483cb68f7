//! Recorded answers as text, cut in every way that can make a difference.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    functions::Functions,
    muse::{Found, Parser, Span, WrittenMarks},
    *,
};

/// Longer than any mark, header or tag: cuts that are farther apart do not meet.
const NEAR: usize = 48;

/// An answer as far as it has been read, all marks being written out.
#[derive(Clone, PartialEq, Debug)]
struct Reading {
    written: WrittenMarks,
    parser: Parser,
    events: Vec<AnswerEvent>,
}

impl Reading {
    fn new(tools: &Value) -> Self {
        let functions = Functions::new(Some(&JsonText(tools.to_string()))).unwrap();
        Self {
            written: WrittenMarks::new(|_| false),
            parser: Parser::new(Arc::new(functions), None),
            events: Vec::new(),
        }
    }

    fn push(mut self, text: &str) -> Self {
        let Self {
            written,
            parser,
            events,
        } = &mut self;
        written.push(text, |found| match found {
            Found::Text(text) => parser.text(text, Span::default(), events),
            Found::Mark(mark) => parser.mark(mark, events),
        });
        self
    }

    fn finish(mut self) -> Value {
        self.parser
            .finish(&self.written.finish(), Span::default(), &mut self.events);
        let text = |is_wanted: fn(&AnswerEvent) -> Option<&str>| self.events.iter().filter_map(is_wanted).collect();
        let reasoning: String = text(|event| match event {
            AnswerEvent::Reasoning(text) => Some(text),
            _ => None,
        });
        let content: String = text(|event| match event {
            AnswerEvent::Content(text) => Some(text),
            _ => None,
        });
        let calls = self.events.iter().filter_map(|event| match event {
            AnswerEvent::Call(call) => {
                let arguments: Value = serde_json::from_str(&call.arguments.0).unwrap();
                Some(json!({"name": call.name, "arguments": arguments}))
            }
            _ => None,
        });
        json!({"reasoning": reasoning, "content": content, "tool_calls": calls.collect::<Vec<_>>()})
    }
}

fn recorded(file: &str) -> Value {
    serde_json::from_str(file).unwrap()
}

/// Whatever was read before, a piece leaves the same state as its characters one by one; so every way to cut the text
/// gives the same.
fn check_cuts(name: &str, text: &str, start: &Reading) {
    let mut states = vec![start.clone()];
    for c in text.chars() {
        let last = states[states.len() - 1].clone();
        states.push(last.push(c.encode_utf8(&mut [0; 4])));
    }
    let bounds: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
    for first in 0..bounds.len() {
        let near = first + 1..bounds.len().min(first + NEAR);
        for end in near.chain([bounds.len() - 1]) {
            let piece = text.get(bounds[first]..bounds[end]).unwrap_or_default();
            let at_once = states[first].clone().push(piece);
            assert_eq!(at_once, states[first.max(end)], "{name}: cut at {first} and {end}");
        }
    }
}

#[test]
fn recorded_answers_are_told_apart_however_they_are_cut() {
    let file = recorded(include_str!("../../tests/fixtures/muse/parse-cases.json"));
    for case in file["cases"].as_array().unwrap() {
        let (name, text) = (case["name"].as_str().unwrap(), case["text"].as_str().unwrap());
        let start = Reading::new(&case["tools"]);
        let expected = json!({
            "reasoning": case["reasoning"], "content": case["content"], "tool_calls": case["tool_calls"],
        });
        assert_eq!(start.clone().push(text).finish(), expected, "{name}");
        check_cuts(name, text, &start);
    }
}

#[test]
fn recorded_chunkings_agree() {
    let file = recorded(include_str!("../../tests/fixtures/muse/cut-cases.json"));
    let start = Reading::new(&file["tools"]);
    for case in file["cases"].as_array().unwrap() {
        let (name, text) = (case["name"].as_str().unwrap(), case["text"].as_str().unwrap());
        let expect = &case["expect"];
        let calls = expect["tool_calls"].as_array().unwrap().iter().map(|call| {
            let arguments: Value = serde_json::from_str(call["arguments"].as_str().unwrap()).unwrap();
            json!({"name": call["name"], "arguments": arguments})
        });
        let expected = json!({
            "reasoning": expect["reasoning_content"], "content": expect["content"], "tool_calls": calls.collect::<Vec<_>>(),
        });
        for chunking in case["chunkings"].as_array().unwrap() {
            let reading = pieces(text, chunking)
                .iter()
                .fold(start.clone(), |reading, piece| reading.push(piece));
            assert_eq!(reading.finish(), expected, "{name} {chunking}");
        }
        check_cuts(name, text, &start);
    }
}

fn pieces(text: &str, chunking: &Value) -> Vec<String> {
    let letters: Vec<String> = text.chars().map(String::from).collect();
    match chunking["kind"].as_str().unwrap() {
        "whole" => vec![text.to_owned()],
        "chars" => letters,
        "cuts" => {
            let cuts: Vec<usize> = serde_json::from_value(chunking["cuts"].clone()).unwrap();
            let starts = [0].into_iter().chain(cuts.iter().copied());
            let ends = cuts.iter().copied().chain([letters.len()]);
            starts
                .zip(ends)
                .map(|(start, end)| letters[start..end].concat())
                .collect()
        }
        other => panic!("the chunking {other} is new"),
    }
}

#[test]
fn the_work_for_a_piece_does_not_grow_with_the_answer() {
    // What is kept is all that a piece can cost: it stays small however much was said.
    let mut reading = Reading::new(&json!([])).push("to=self<|message|>");
    for _ in 0..1000 {
        reading = reading.push("to=to=x < <| to to=");
        reading.events.clear();
        assert!(format!("{:?}", reading.parser).len() < 4000);
    }
}
