//! The functions a client declared, as far as reading a call needs them: their names, and which parameters are strings.

use std::collections::HashMap;

use cluster_messages::{JsonText, RequestError};
use serde_json::Value;

use super::FunctionCall;

/// The declared functions.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Functions {
    /// In the order of the declaration.
    names: Vec<String>,
    parameters: HashMap<String, HashMap<String, Typed>>,
}

/// How the text of a parameter is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Typed {
    /// It is a string, whatever it looks like.
    Text,
    /// It is a string, or the word `null`.
    TextOrNull,
    /// It is JSON if it can be.
    Json,
}

impl Functions {
    /// Reads the tool definitions of a request.
    pub(super) fn new(tools: Option<&JsonText>) -> Result<Self, RequestError> {
        let mut functions = Self::default();
        let Some(tools) = tools else {
            return Ok(functions);
        };
        let tools: Vec<Value> = serde_json::from_str(&tools.0)
            .map_err(|error| RequestError::invalid("tools", format!("not a list in JSON: {error}")))?;
        for (index, tool) in tools.iter().enumerate() {
            let function = tool.get("function").unwrap_or(tool);
            let Some(name) = function["name"].as_str().filter(|name| !name.is_empty()) else {
                let place = format!("tools[{index}].function.name");
                return Err(RequestError::invalid(place, "is missing; name the function"));
            };
            let properties = function["parameters"]["properties"].as_object();
            let typed = properties
                .into_iter()
                .flatten()
                .map(|(key, schema)| (key.clone(), typed(schema)));
            functions.parameters.insert(name.to_owned(), typed.collect());
            functions.names.push(name.to_owned());
        }
        Ok(functions)
    }

    /// In the order of their declaration.
    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    /// A call as the model wrote it, its values typed. A later value of a parameter counts.
    pub(super) fn call(&self, written: &str, values: &[(&str, &str)]) -> FunctionCall {
        let name = self.resolve(written);
        let schema = self.parameters.get(name);
        let mut arguments: Vec<(&str, String)> = Vec::with_capacity(values.len());
        for (key, text) in values {
            let typed = schema.and_then(|schema| schema.get(*key)).copied();
            let value = typed.unwrap_or(Typed::Json).read(text);
            match arguments.iter_mut().find(|(known, _)| known == key) {
                Some((_, earlier)) => *earlier = value,
                None => arguments.push((key, value)),
            }
        }
        let members: Vec<String> = arguments
            .iter()
            .map(|(key, value)| format!("{}:{value}", quoted(key)))
            .collect();
        FunctionCall {
            name: name.to_owned(),
            arguments: JsonText(format!("{{{}}}", members.join(","))),
        }
    }

    /// Models write `f.f` for `f`. Nothing else is guessed: an unknown name is the client's to refuse.
    fn resolve<'w>(&self, written: &'w str) -> &'w str {
        if self.parameters.contains_key(written) {
            return written;
        }
        match written.split_at_checked(written.len() / 2) {
            Some((half, rest)) if rest.strip_prefix('.') == Some(half) && self.parameters.contains_key(half) => half,
            _ => written,
        }
    }
}

impl Typed {
    /// The value in JSON. What is JSON already stays as it is written, so that no digit of a number is lost.
    fn read(self, text: &str) -> String {
        let is_json = match self {
            Typed::Text => false,
            Typed::TextOrNull => text.trim() == "null",
            Typed::Json => serde_json::from_str::<Value>(text).is_ok(),
        };
        if is_json { text.trim().to_owned() } else { quoted(text) }
    }
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

fn typed(schema: &Value) -> Typed {
    let mut kinds = kinds(schema);
    kinds.sort_unstable();
    kinds.dedup();
    match kinds.as_slice() {
        ["string"] => Typed::Text,
        ["null", "string"] => Typed::TextOrNull,
        _ => Typed::Json,
    }
}

/// The types that a schema names. One that names none allows all.
fn kinds(schema: &Value) -> Vec<&str> {
    match &schema["type"] {
        Value::String(kind) => return vec![kind],
        Value::Array(kinds) => return kinds.iter().filter_map(Value::as_str).collect(),
        _ => {}
    }
    let choices = ["anyOf", "oneOf"].into_iter().find_map(|key| schema[key].as_array());
    match choices {
        None => vec!["any"],
        Some(choices) => choices
            .iter()
            .flat_map(|choice| match &choice["type"] {
                Value::String(kind) => vec![kind.as_str()],
                _ => vec!["any"],
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests;
