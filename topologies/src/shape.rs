//! Checks a tree against the JSON Schema derived from the structs: names, types, ranges, forms.
//!
//! ```text
//! tree + schema → problems + a JSON value without the faulty parts, which serde then reads
//! ```
//! Leaving out what is faulty lets later checks run on the rest, so that one reading reports as much as possible.

use serde_json::{Map, Value as Json};

use crate::{
    problem::Problem,
    suggest::nearest,
    tree::{Entry, Tree, Value, join},
    units::FORMATS,
};

/// What is left of `tree` after everything that `schema` refuses was reported and removed; nothing when what is left would
/// not be whole.
pub(crate) fn fit(tree: &Tree, schema: &Json, problems: &mut Vec<Problem>) -> Option<Json> {
    let mut walk = Walk {
        root: schema,
        problems,
        holes: false,
    };
    let json = walk.value(tree, schema, "");
    json.filter(|_| !walk.holes)
}

struct Walk<'a> {
    root: &'a Json,
    problems: &'a mut Vec<Problem>,
    /// A list lost an item. The others moved up, and what refers to the lost one would seem wrong: nothing can be said
    /// about the meaning of such a file.
    holes: bool,
}

impl<'a> Walk<'a> {
    fn value(&mut self, tree: &Tree, schema: &'a Json, path: &str) -> Option<Json> {
        let schema = self.resolve(schema);
        if let Some(words) = words(schema) {
            return self.word(tree, &words, path);
        }
        if let Some(variants) = schema["oneOf"].as_array() {
            return self.variant(tree, variants, path);
        }
        match type_of(schema) {
            "object" => self.object(tree, schema, path),
            "array" => self.list(tree, schema, path),
            "string" => self.text(tree, schema, path),
            "integer" | "number" => self.number(tree, schema, path),
            "boolean" => self.boolean(tree, path),
            other => unreachable!("no field of the schema has type '{other}'"),
        }
    }

    /// Follows references and unwraps optional values.
    fn resolve(&self, schema: &'a Json) -> &'a Json {
        if let Some(name) = schema["$ref"]
            .as_str()
            .and_then(|target| target.strip_prefix("#/$defs/"))
        {
            return self.resolve(&self.root["$defs"][name]);
        }
        let some = schema["anyOf"].as_array().and_then(|options| options.first());
        some.map_or(schema, |some| self.resolve(some))
    }

    fn report(&mut self, tree: &Tree, rule: &'static str, path: &str, message: String, help: String) {
        self.problems.push(Problem {
            place: Some(tree.place),
            ..Problem::new(rule, path, message, help)
        });
    }

    fn wrong_type(&mut self, tree: &Tree, expected: &str, path: &str, help: &str) {
        let subject = if path.is_empty() {
            "the file".into()
        } else {
            format!("'{path}'")
        };
        let message = format!("{subject} must be {expected}, not {}", tree.value.describe());
        self.report(tree, "wrong-type", path, message, help.to_owned());
    }

    fn object(&mut self, tree: &Tree, schema: &'a Json, path: &str) -> Option<Json> {
        let entries = match &tree.value {
            Value::Map(entries) => entries.as_slice(),
            // `cache:` with nothing after it takes all defaults.
            Value::Null => &[],
            _ => {
                self.wrong_type(
                    tree,
                    "a mapping",
                    path,
                    "write its fields below it, indented, as 'field: value'",
                );
                return None;
            }
        };
        let Some(fields) = schema["properties"].as_object() else {
            return Some(self.free_map(entries, &schema["additionalProperties"], path));
        };
        let mut kept = Map::new();
        for entry in entries {
            match fields.get(&entry.key) {
                Some(field) => self.field(entry, field, path, &mut kept),
                None => self.unknown_field(entry, fields, path),
            }
        }
        let whole = self.required(tree, entries, schema, path, &kept);
        whole.then_some(Json::Object(kept))
    }

    fn field(&mut self, entry: &Entry, schema: &'a Json, path: &str, kept: &mut Map<String, Json>) {
        let path = join(path, &entry.key);
        // An absent scalar written as `key:` is as if it were not there, where absence has a meaning.
        if entry.tree.value == Value::Null && is_optional(schema) && type_of(self.resolve(schema)) != "object" {
            return;
        }
        let mut tree = &entry.tree;
        let placed;
        if matches!(tree.value, Value::Null | Value::Map(_) | Value::List(_)) {
            placed = Tree {
                place: entry.key_place,
                ..tree.clone()
            };
            tree = &placed;
        }
        if let Some(json) = self.value(tree, schema, &path) {
            kept.insert(entry.key.clone(), json);
        }
    }

    /// Reports required fields that are not there. A required field that is there but faulty was reported already.
    fn required(
        &mut self,
        tree: &Tree,
        entries: &[Entry],
        schema: &Json,
        path: &str,
        kept: &Map<String, Json>,
    ) -> bool {
        let mut whole = true;
        for field in schema["required"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Json::as_str)
        {
            whole &= kept.contains_key(field);
            if !entries.iter().any(|entry| entry.key == field) {
                let owner = if path.is_empty() { "the file" } else { path };
                let message = format!("{owner} has no '{field}'");
                let help = format!("add '{field}: {}'", example(self.resolve(&schema["properties"][field])));
                self.report(tree, "missing-field", &join(path, field), message, help);
            }
        }
        whole
    }

    fn unknown_field(&mut self, entry: &Entry, fields: &Map<String, Json>, path: &str) {
        let names = fields.keys().map(String::as_str);
        let help = match nearest(&entry.key, names.clone()) {
            Some(name) => format!("did you mean '{name}'?"),
            None => format!("fields here are {}", names.collect::<Vec<_>>().join(", ")),
        };
        let owner = if path.is_empty() { "a file" } else { path };
        self.problems.push(Problem {
            place: Some(entry.key_place),
            ..Problem::new(
                "unknown-field",
                &join(path, &entry.key),
                format!("{owner} has no field '{}'", entry.key),
                help,
            )
        });
    }

    /// A mapping whose keys are the user's own.
    fn free_map(&mut self, entries: &[Entry], schema: &'a Json, path: &str) -> Json {
        let mut kept = Map::new();
        for entry in entries {
            self.field(entry, schema, path, &mut kept);
        }
        Json::Object(kept)
    }

    fn list(&mut self, tree: &Tree, schema: &'a Json, path: &str) -> Option<Json> {
        let Value::List(items) = &tree.value else {
            self.wrong_type(tree, "a list", path, "write it as '[first, second]'");
            return None;
        };
        let mut kept = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            kept.extend(self.value(item, &schema["items"], &join(path, index)));
        }
        self.holes |= kept.len() < items.len();
        Some(Json::Array(kept))
    }

    /// A value with one key that says which kind it is, such as `host: 1GiB`.
    fn variant(&mut self, tree: &Tree, variants: &'a [Json], path: &str) -> Option<Json> {
        let kinds = variants.iter().filter_map(|variant| variant["required"][0].as_str());
        let kinds = kinds.collect::<Vec<_>>().join(", ");
        let help = format!("write one of {kinds}, such as '{}'", example(&variants[0]));
        let Value::Map(entries) = &tree.value else {
            self.wrong_type(tree, "a mapping with one key", path, &help);
            return None;
        };
        let [entry] = entries.as_slice() else {
            let message = format!("'{path}' must have one key, not {}", entries.len());
            self.report(tree, "wrong-type", path, message, help);
            return None;
        };
        let known = variants
            .iter()
            .find(|variant| variant["required"][0] == entry.key.as_str());
        let Some(variant) = known else {
            self.report(
                tree,
                "unknown-value",
                path,
                format!("'{}' is not a kind of {path}", entry.key),
                help,
            );
            return None;
        };
        let mut kept = Map::new();
        self.field(entry, &variant["properties"][&entry.key], path, &mut kept);
        (!kept.is_empty()).then_some(Json::Object(kept))
    }

    fn word(&mut self, tree: &Tree, words: &[&str], path: &str) -> Option<Json> {
        let text = match &tree.value {
            Value::Text(text) => text.as_str(),
            _ => "",
        };
        if words.contains(&text) {
            return Some(Json::from(text));
        }
        let all = words.join(", ");
        let help = match nearest(text, words.iter().copied()) {
            Some(word) => format!("did you mean '{word}'? It must be one of {all}"),
            None => format!("write one of {all}"),
        };
        let message = format!("{} is not a value of '{path}'", tree.value.describe());
        self.report(tree, "unknown-value", path, message, help);
        None
    }

    fn text(&mut self, tree: &Tree, schema: &Json, path: &str) -> Option<Json> {
        let text = match &tree.value {
            Value::Text(text) => text.clone(),
            // `memory: 512` lacks a unit rather than quotes.
            number @ (Value::Integer(_) | Value::Number(_)) if form(schema, &number.describe()).is_err() => {
                number.describe()
            }
            _ => {
                let help = format!("write '{}', in quotes if it looks like a number", example(schema));
                self.wrong_type(tree, "a string", path, &help);
                return None;
            }
        };
        match form(schema, &text) {
            Ok(()) => Some(Json::from(text)),
            Err(malformed) => {
                self.report(tree, "wrong-form", path, malformed.message, malformed.help);
                None
            }
        }
    }

    fn number(&mut self, tree: &Tree, schema: &Json, path: &str) -> Option<Json> {
        let whole = type_of(schema) == "integer";
        let (json, value) = match tree.value {
            Value::Integer(value) => (Json::from(value), value as f64),
            Value::Number(value) if !whole || value.fract() == 0.0 && value.abs() > 9e15 => (Json::from(value), value),
            _ => {
                let expected = if whole { "a whole number" } else { "a number" };
                self.wrong_type(tree, expected, path, &format!("write a number {}", range(schema)));
                return None;
            }
        };
        let bound = |name: &str| schema[name].as_f64();
        if bound("minimum").is_some_and(|low| value < low) || bound("maximum").is_some_and(|high| value > high) {
            let message = format!("'{path}' cannot be {}", tree.value.describe());
            self.report(
                tree,
                "out-of-range",
                path,
                message,
                format!("write a number {}", range(schema)),
            );
            return None;
        }
        Some(json)
    }

    fn boolean(&mut self, tree: &Tree, path: &str) -> Option<Json> {
        if let Value::Bool(value) = tree.value {
            return Some(Json::from(value));
        }
        self.wrong_type(tree, "true or false", path, "write true or false");
        None
    }
}

fn form(schema: &Json, text: &str) -> Result<(), crate::Malformed> {
    let Some(name) = schema["format"].as_str() else {
        return Ok(());
    };
    match FORMATS.iter().find(|(format, _)| *format == name) {
        Some((_, check)) => check(text),
        None => crate::units::standard_form(name, text),
    }
}

/// The words of an enumeration, if the schema is one.
fn words(schema: &Json) -> Option<Vec<&str>> {
    if let Some(words) = schema["enum"].as_array() {
        return words.iter().map(Json::as_str).collect();
    }
    let variants = schema["oneOf"].as_array()?;
    variants.iter().map(|variant| variant["const"].as_str()).collect()
}

/// The type of a schema, whether optional or not.
fn type_of(schema: &Json) -> &str {
    let one = schema["type"].as_str();
    let first = schema["type"]
        .as_array()
        .and_then(|types| types.first())
        .and_then(Json::as_str);
    one.or(first).unwrap_or("object")
}

fn is_optional(schema: &Json) -> bool {
    let among_types = schema["type"]
        .as_array()
        .is_some_and(|types| types.iter().any(|name| name == "null"));
    let among_options = schema["anyOf"]
        .as_array()
        .is_some_and(|options| options.iter().any(|one| one["type"] == "null"));
    among_types || among_options
}

/// A value one could write.
fn example(schema: &Json) -> String {
    if let Some(example) = schema["examples"][0].as_str() {
        return example.to_owned();
    }
    if let Some(kind) = schema["required"][0].as_str() {
        return format!("{{ {kind}: {} }}", example(&schema["properties"][kind]));
    }
    match type_of(schema) {
        "string" => "text",
        "integer" | "number" => "1",
        "boolean" => "true",
        "array" => "[]",
        _ => "{}",
    }
    .to_owned()
}

fn range(schema: &Json) -> String {
    match (schema["minimum"].as_f64(), schema["maximum"].as_f64()) {
        (Some(low), Some(high)) => format!("from {low} to {high}"),
        (Some(low), None) => format!("of at least {low}"),
        (None, Some(high)) => format!("of at most {high}"),
        (None, None) => "such as 1".into(),
    }
}
