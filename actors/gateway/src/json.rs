//! A request's JSON, parsed by rules that clients can rely on.
//!
//! Strings borrow from the body where they can. A key that appears twice in one object is refused at any depth: readers
//! that disagree on which one counts are a way past checks. Nesting is bounded by the parser (128), lone surrogates are
//! refused by it, and an error names the field it happened in.

use std::{borrow::Cow, cell::RefCell, fmt};

use cluster_messages::ErrorKind;
use serde::{
    Serialize, Serializer,
    de::{self, DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor},
};

use crate::error::{ApiError, Fault};

/// Objects up to this size are searched pair by pair; larger ones are sorted.
const PAIRWISE_MAX: usize = 16;

/// Any JSON value.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Json<'a> {
    Null,
    Bool(bool),
    Integer(i128),
    Float(f64),
    Text(Cow<'a, str>),
    List(Vec<Json<'a>>),
    Object(Vec<(Cow<'a, str>, Json<'a>)>),
}

impl<'a> Json<'a> {
    /// Parses a whole body.
    pub(crate) fn parse(body: &'a [u8]) -> Result<Self, ApiError> {
        let trail = Trail::default();
        let mut parser = serde_json::Deserializer::from_slice(body);
        let parsed = ValueSeed { trail: &trail }.deserialize(&mut parser);
        parsed
            .and_then(|value| parser.end().map(|()| value))
            .map_err(|error| ApiError {
                param: trail.path(),
                ..ApiError::new(
                    Fault::Request(ErrorKind::Invalid),
                    format!("the body is not valid JSON: {error}"),
                )
            })
    }

    /// What it is, in words for the client.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Json::Null => "null",
            Json::Bool(_) => "a boolean",
            Json::Integer(_) | Json::Float(_) => "a number",
            Json::Text(_) => "a string",
            Json::List(_) => "a list",
            Json::Object(_) => "an object",
        }
    }
}

impl Serialize for Json<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Json::Null => serializer.serialize_unit(),
            Json::Bool(value) => serializer.serialize_bool(*value),
            Json::Integer(value) => serializer.serialize_i128(*value),
            Json::Float(value) => serializer.serialize_f64(*value),
            Json::Text(text) => serializer.serialize_str(text),
            Json::List(items) => serializer.collect_seq(items),
            Json::Object(entries) => serializer.collect_map(entries.iter().map(|(key, value)| (key, value))),
        }
    }
}

/// Where parsing failed, innermost step first. Costs nothing while all goes well.
#[derive(Default)]
struct Trail(RefCell<Vec<Step>>);

enum Step {
    Key(String),
    Index(usize),
}

impl Trail {
    fn push(&self, step: Step) {
        self.0.borrow_mut().push(step);
    }

    fn path(&self) -> Option<String> {
        let steps = self.0.borrow();
        // The path of a body nested out of bounds would be as long as the body.
        if steps.is_empty() || steps.len() > PAIRWISE_MAX {
            return None;
        }
        let mut path = String::new();
        for step in steps.iter().rev() {
            match step {
                Step::Key(key) if path.is_empty() => path.push_str(key),
                Step::Key(key) => path.extend([".", key]),
                Step::Index(index) => path.push_str(&format!("[{index}]")),
            }
        }
        Some(path)
    }
}

#[derive(Clone, Copy)]
struct ValueSeed<'t> {
    trail: &'t Trail,
}

impl<'de> DeserializeSeed<'de> for ValueSeed<'_> {
    type Value = Json<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Json<'de>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueSeed<'_> {
    type Value = Json<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Json<'de>, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json<'de>, E> {
        Ok(Json::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json<'de>, E> {
        Ok(Json::Integer(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json<'de>, E> {
        Ok(Json::Integer(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Json<'de>, E> {
        Ok(Json::Float(value))
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Json<'de>, E> {
        Ok(Json::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Json<'de>, E> {
        Ok(Json::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Json<'de>, A::Error> {
        let mut items = Vec::new();
        loop {
            match list.next_element_seed(self) {
                Ok(Some(item)) => items.push(item),
                Ok(None) => return Ok(Json::List(items)),
                Err(error) => {
                    self.trail.push(Step::Index(items.len()));
                    return Err(error);
                }
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json<'de>, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = map.next_key_seed(KeySeed)? {
            match map.next_value_seed(self) {
                Ok(value) => entries.push((key, value)),
                Err(error) => {
                    self.trail.push(Step::Key(key.chars().take(64).collect()));
                    return Err(error);
                }
            }
        }
        match repeated_key(&entries) {
            None => Ok(Json::Object(entries)),
            Some(key) => {
                let key: String = key.chars().take(64).collect();
                Err(A::Error::custom(format!("the key \"{key}\" appears twice")))
            }
        }
    }
}

struct KeySeed;

impl<'de> DeserializeSeed<'de> for KeySeed {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Cow<'de, str>, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for KeySeed {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_borrowed_str<E: de::Error>(self, key: &'de str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Borrowed(key))
    }

    fn visit_str<E: de::Error>(self, key: &str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Owned(key.to_owned()))
    }
}

fn repeated_key<'k>(entries: &'k [(Cow<'_, str>, Json<'_>)]) -> Option<&'k str> {
    if entries.len() <= PAIRWISE_MAX {
        let mut rest = entries.iter().enumerate();
        let repeated = rest.find(|(index, (key, _))| entries[..*index].iter().any(|(other, _)| other == key));
        return repeated.map(|(_, (key, _))| &**key);
    }
    let mut keys: Vec<&str> = entries.iter().map(|(key, _)| &**key).collect();
    keys.sort_unstable();
    keys.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0])
}

#[cfg(test)]
mod tests;
