//! YAML text to a tree in which every key and value knows its place. Finds what is wrong with the text as YAML: the first
//! syntax error, or all duplicate keys.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{DuplicateKeyPolicy, Location, Options, Spanned, UserMessageFormatter};

use crate::problem::{Place, Problem};

/// A value and where it stands.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Tree {
    pub(crate) value: Value,
    pub(crate) place: Place,
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Integer(i64),
    Number(f64),
    Text(String),
    List(Vec<Tree>),
    Map(Vec<Entry>),
}

/// A key with its value.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) key_place: Place,
    pub(crate) tree: Tree,
}

impl Value {
    /// What a message calls this value.
    pub(crate) fn describe(&self) -> String {
        match self {
            Value::Null => "nothing".into(),
            Value::Bool(value) => format!("{value}"),
            Value::Integer(value) => format!("{value}"),
            Value::Number(value) => format!("{value}"),
            Value::Text(text) => format!("'{text}'"),
            Value::List(_) => "a list".into(),
            Value::Map(_) => "a mapping".into(),
        }
    }
}

impl Tree {
    /// Reads `text`. Later entries of a key that is there already are reported and left out.
    pub(crate) fn read(text: &str, problems: &mut Vec<Problem>) -> Option<Tree> {
        let raw: Spanned<Raw> = match serde_saphyr::from_str_with_options(text, options()) {
            Ok(raw) => raw,
            Err(error) => {
                problems.push(syntax_problem(&error));
                return None;
            }
        };
        Some(tree(raw, "", problems))
    }

    /// Where the thing at `path` stands: a scalar itself, a mapping or list by its key. A path that the file does not have
    /// stands where the deepest part of it does that is there.
    pub(crate) fn place_of(&self, path: &str) -> Place {
        let mut place = Place::start();
        let mut tree = self;
        for step in path.split('.').filter(|step| !step.is_empty()) {
            let Some((next, next_place)) = tree.child(step) else {
                break;
            };
            (tree, place) = (next, next_place);
        }
        place
    }

    fn child(&self, step: &str) -> Option<(&Tree, Place)> {
        match &self.value {
            Value::Map(entries) => {
                let entry = entries.iter().find(|entry| entry.key == step)?;
                let place = match entry.tree.value {
                    Value::Map(_) | Value::List(_) | Value::Null => entry.key_place,
                    _ => entry.tree.place,
                };
                Some((&entry.tree, place))
            }
            Value::List(items) => {
                let item = items.get(step.parse::<usize>().ok()?)?;
                Some((item, item.place))
            }
            _ => None,
        }
    }
}

/// `path` extended by one key or index.
pub(crate) fn join(path: &str, step: impl fmt::Display) -> String {
    if path.is_empty() {
        return step.to_string();
    }
    format!("{path}.{step}")
}

fn options() -> Options {
    serde_saphyr::options! {
        duplicate_keys: DuplicateKeyPolicy::PassThrough,
        strict_booleans: true,
        with_snippet: false,
    }
}

fn syntax_problem(error: &serde_saphyr::Error) -> Problem {
    let place = error.location().map_or(Place::start(), place);
    let rendered = error.render_with_formatter(&UserMessageFormatter);
    let message = rendered.split(" at line ").next().unwrap_or_default().to_owned();
    Problem {
        place: Some(place),
        ..Problem::new("yaml", "", message, syntax_help(&rendered))
    }
}

/// What usually repairs a syntax error.
fn syntax_help(message: &str) -> &'static str {
    if message.contains("tab") {
        "indent with spaces"
    } else if message.contains("multiple") {
        "one file holds one document; remove the line ---"
    } else {
        "correct the YAML; quote a value that contains ': ', '#', brackets or quotes"
    }
}

fn place(location: Location) -> Place {
    let clamp = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
    Place {
        line: clamp(location.line()).max(1),
        column: clamp(location.column()).max(1),
        len: clamp(location.span().len()),
    }
}

fn tree(raw: Spanned<Raw>, path: &str, problems: &mut Vec<Problem>) -> Tree {
    let place = place(raw.referenced);
    let value = match raw.value {
        Raw::Scalar(value) => value,
        Raw::List(items) => Value::List(
            items
                .into_iter()
                .enumerate()
                .map(|(index, item)| tree(item, &join(path, index), problems))
                .collect(),
        ),
        Raw::Map(entries) => Value::Map(map(entries, path, problems)),
    };
    Tree { value, place }
}

fn map(raw: Vec<(Spanned<String>, Spanned<Raw>)>, path: &str, problems: &mut Vec<Problem>) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::with_capacity(raw.len());
    for (key, value) in raw {
        let key_place = place(key.referenced);
        let path = join(path, &key.value);
        if let Some(first) = entries.iter().find(|entry| entry.key == key.value) {
            problems.push(Problem {
                place: Some(key_place),
                ..Problem::new(
                    "duplicate-key",
                    &path,
                    format!("'{}' is given twice, first in line {}", key.value, first.key_place.line),
                    "keep one of the two",
                )
            });
            continue;
        }
        let tree = tree(value, &path, problems);
        entries.push(Entry {
            key: key.value,
            key_place,
            tree,
        });
    }
    entries
}

/// What serde hands over, before duplicate keys are sorted out.
enum Raw {
    Scalar(Value),
    List(Vec<Spanned<Raw>>),
    Map(Vec<(Spanned<String>, Spanned<Raw>)>),
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RawVisitor)
    }
}

struct RawVisitor;

impl<'de> Visitor<'de> for RawVisitor {
    type Value = Raw;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Raw, E> {
        Ok(Raw::Scalar(Value::Null))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Raw, E> {
        Ok(Raw::Scalar(Value::Bool(value)))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Raw, E> {
        Ok(Raw::Scalar(Value::Integer(value)))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Raw, E> {
        let scalar = i64::try_from(value).map_or(Value::Number(value as f64), Value::Integer);
        Ok(Raw::Scalar(scalar))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Raw, E> {
        Ok(Raw::Scalar(Value::Number(value)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Raw, E> {
        Ok(Raw::Scalar(Value::Text(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Raw, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element()? {
            items.push(item);
        }
        Ok(Raw::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Raw, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = access.next_entry()? {
            entries.push(entry);
        }
        Ok(Raw::Map(entries))
    }
}
