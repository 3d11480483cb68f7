//! JSON as Python prints it, because models were trained on its blanks, escapes and numbers.

use std::fmt::Write;

use minijinja::{Error, ErrorKind, Value, value::ValueKind};

/// The arguments of `json.dumps` that templates use.
#[derive(Debug, Default)]
pub(super) struct JsonStyle {
    pub(super) ascii: bool,
    pub(super) indent: Option<usize>,
    /// Between items, and between key and value.
    pub(super) separators: Option<[String; 2]>,
    pub(super) sort_keys: bool,
}

/// What `json.dumps` gives. Python refuses undefined values; here they are null, as a missing optional field of a tool is.
pub(super) fn to_json(value: &Value, style: &JsonStyle) -> Result<String, Error> {
    let default = if style.indent.is_some() {
        (",", ": ")
    } else {
        (", ", ": ")
    };
    let (item, key) = match &style.separators {
        Some([item, key]) => (item.as_str(), key.as_str()),
        None => default,
    };
    let mut writer = Writer {
        json: String::new(),
        style,
        item,
        key,
        depth: 0,
    };
    writer.value(value)?;
    Ok(writer.json)
}

struct Writer<'s> {
    json: String,
    style: &'s JsonStyle,
    item: &'s str,
    key: &'s str,
    depth: usize,
}

impl Writer<'_> {
    fn value(&mut self, value: &Value) -> Result<(), Error> {
        match value.kind() {
            ValueKind::Undefined | ValueKind::None => self.json.push_str("null"),
            ValueKind::Bool => self.json.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.json.push_str(&number(value)?),
            ValueKind::String => self.string(value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => self.list(value)?,
            ValueKind::Map => self.map(value)?,
            kind => return Err(not_json(&format!("a value of the kind {kind}"))),
        }
        Ok(())
    }

    fn list(&mut self, value: &Value) -> Result<(), Error> {
        let items: Vec<Value> = value.try_iter()?.collect();
        self.nested('[', ']', &items, |writer, item| writer.value(item))
    }

    fn map(&mut self, value: &Value) -> Result<(), Error> {
        let mut keys: Vec<Value> = value.try_iter()?.collect();
        if self.style.sort_keys {
            keys.sort();
        }
        self.nested('{', '}', &keys, |writer, key| {
            writer.string(&key_text(key)?);
            writer.json.push_str(writer.key);
            writer.value(&value.get_item(key)?)
        })
    }

    fn nested(
        &mut self,
        open: char,
        close: char,
        items: &[Value],
        mut write: impl FnMut(&mut Self, &Value) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.json.push(open);
        self.depth += 1;
        for (index, item) in items.iter().enumerate() {
            if index > 0 {
                self.json.push_str(self.item);
            }
            self.new_line();
            write(self, item)?;
        }
        self.depth -= 1;
        if !items.is_empty() {
            self.new_line();
        }
        self.json.push(close);
        Ok(())
    }

    fn new_line(&mut self) {
        if let Some(indent) = self.style.indent {
            self.json.push('\n');
            self.json.extend(std::iter::repeat_n(' ', indent * self.depth));
        }
    }

    fn string(&mut self, text: &str) {
        self.json.push('"');
        for c in text.chars() {
            match c {
                '"' => self.json.push_str("\\\""),
                '\\' => self.json.push_str("\\\\"),
                '\n' => self.json.push_str("\\n"),
                '\r' => self.json.push_str("\\r"),
                '\t' => self.json.push_str("\\t"),
                '\u{8}' => self.json.push_str("\\b"),
                '\u{c}' => self.json.push_str("\\f"),
                '\0'..='\u{1f}' => self.escape(u16::from(c as u8)),
                // Stand-ins for hidden text must be found again, so they stay themselves.
                _ if self.style.ascii && !c.is_ascii() && !crate::controls::is_stand_in(c) => {
                    c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| self.escape(*unit));
                }
                _ => self.json.push(c),
            }
        }
        self.json.push('"');
    }

    fn escape(&mut self, unit: u16) {
        write!(self.json, "\\u{unit:04x}").expect("writing to a string cannot fail");
    }
}

fn key_text(key: &Value) -> Result<String, Error> {
    match key.kind() {
        ValueKind::String => Ok(key.as_str().unwrap_or_default().to_owned()),
        ValueKind::Number => number(key),
        ValueKind::Bool => Ok(if key.is_true() { "true" } else { "false" }.to_owned()),
        ValueKind::None => Ok("null".to_owned()),
        kind => Err(not_json(&format!("a key of the kind {kind}"))),
    }
}

fn not_json(what: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("tojson cannot print {what}"))
}

fn number(value: &Value) -> Result<String, Error> {
    if value.is_integer() {
        return Ok(value.to_string());
    }
    Ok(float(f64::try_from(value.clone())?))
}

/// Python's `repr` of a float: the shortest digits that give it back, with an exponent when it is below -4 or above 15.
fn float(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').expect("the format has an exponent");
    let exponent: i32 = exponent.parse().expect("the exponent of a float is a small number");
    if (-4..16).contains(&exponent) {
        let plain = format!("{value}");
        return if plain.contains('.') { plain } else { plain + ".0" };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}
