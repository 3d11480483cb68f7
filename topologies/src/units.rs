//! Strings with a meaning of their own: sizes, spans of time, names, digests, where a model comes from.
//!
//! Each type names its form in the JSON Schema by `format`; [`FORMATS`] is the table by which a file's shape is checked.

use std::{fmt, str::FromStr, time::Duration};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// Why a string does not have the form its field asks for.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Malformed {
    /// What is wrong, with the value.
    pub message: String,
    /// What to write instead.
    pub help: String,
}

impl Malformed {
    fn new(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            help: help.into(),
        }
    }
}

/// Checks one string.
pub(crate) type Form = fn(&str) -> Result<(), Malformed>;

/// The forms a string field can have, by the name in the schema's `format`.
pub(crate) const FORMATS: &[(&str, Form)] = &[
    ("size", |text| text.parse::<ByteSize>().map(drop)),
    ("span", |text| text.parse::<Span>().map(drop)),
    ("name", |text| text.parse::<Name>().map(drop)),
    ("sha256", |text| text.parse::<Sha256>().map(drop)),
    ("model-source", |text| text.parse::<ModelSource>().map(drop)),
];

/// Checks a form that JSON Schema itself names.
pub(crate) fn standard_form(format: &str, text: &str) -> Result<(), Malformed> {
    if format == "ip" && text.parse::<std::net::IpAddr>().is_err() {
        let help = "write an IPv4 or IPv6 address, such as 127.0.0.1 or 0.0.0.0";
        return Err(Malformed::new(format!("'{text}' is not an address"), help));
    }
    Ok(())
}

/// Makes a type read, written and described as a string of one form.
macro_rules! string_form {
    ($type:ident, $format:literal, $example:literal) => {
        impl TryFrom<String> for $type {
            type Error = Malformed;

            fn try_from(text: String) -> Result<Self, Malformed> {
                text.parse()
            }
        }

        impl From<$type> for String {
            fn from(value: $type) -> String {
                value.to_string()
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl JsonSchema for $type {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": "string", "format": $format, "examples": [$example] })
            }
        }
    };
}

string_form!(ByteSize, "size", "256MiB");
string_form!(Span, "span", "10s");
string_form!(Name, "name", "local");
string_form!(
    Sha256,
    "sha256",
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
);
string_form!(ModelSource, "model-source", "smollm2-135m-instruct");

/// An amount of memory, written with its unit: `256MiB`, `1.5GiB`, `64KiB`, `500MB`, `1024B`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ByteSize(pub u64);

/// A size is written in the unit that leaves the smallest whole number: `900GB`, `256MiB`.
const SIZE_UNITS: &[(&str, u64)] = &[
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("KB", 1_000),
    ("B", 1),
];

impl ByteSize {
    /// `mebibytes` times 2^20 bytes.
    pub const fn mib(mebibytes: u64) -> Self {
        Self(mebibytes << 20)
    }

    /// The number of bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl FromStr for ByteSize {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        let help =
            "write a number and a unit: B, KiB, MiB, GiB, TiB (powers of 1024) or KB, MB, GB, TB, such as 256MiB";
        let wrong = || Malformed::new(format!("'{text}' is not a size"), help);
        let (number, unit) = split_unit(text).ok_or_else(wrong)?;
        let (_, scale) = SIZE_UNITS
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(unit))
            .ok_or_else(wrong)?;
        scaled(number, *scale).map(Self).ok_or_else(wrong)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = |unit: &&(&str, u64)| self.0 >= unit.1 && self.0.is_multiple_of(unit.1);
        let smallest = SIZE_UNITS.iter().filter(whole).min_by_key(|unit| self.0 / unit.1);
        let (name, scale) = smallest.unwrap_or(&("B", 1));
        write!(f, "{}{name}", self.0 / scale)
    }
}

/// A span of time, written with its unit: `500ms`, `10s`, `5m`, `2h`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Span {
    /// How long, in milliseconds.
    pub ms: u64,
}

/// Largest first, as for sizes.
const SPAN_UNITS: &[(&str, u64)] = &[("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

impl Span {
    /// `ms` milliseconds.
    pub const fn from_ms(ms: u64) -> Self {
        Self { ms }
    }

    /// `seconds` seconds.
    pub const fn from_s(seconds: u64) -> Self {
        Self { ms: seconds * 1000 }
    }
}

impl From<Span> for Duration {
    fn from(span: Span) -> Duration {
        Duration::from_millis(span.ms)
    }
}

impl FromStr for Span {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        let help = "write a number and a unit: ms, s, m or h, such as 500ms or 10s";
        let wrong = || Malformed::new(format!("'{text}' is not a span of time"), help);
        let (number, unit) = split_unit(text).ok_or_else(wrong)?;
        let (_, scale) = SPAN_UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?;
        scaled(number, *scale).map(Self::from_ms).ok_or_else(wrong)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = |unit: &&(&str, u64)| self.ms >= unit.1 && self.ms.is_multiple_of(unit.1);
        let (name, scale) = SPAN_UNITS.iter().find(whole).unwrap_or(&("ms", 1));
        write!(f, "{}{name}", self.ms / scale)
    }
}

/// `"1.5 GiB"` → `("1.5", "GiB")`.
fn split_unit(text: &str) -> Option<(&str, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(end);
    Some((number, unit.trim_start()))
}

/// A decimal number times `scale`, rounded down; nothing when it is no number or too large. Counted in integers: a float
/// would lose the last bytes of a large size.
fn scaled(number: &str, scale: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let digits = u32::try_from(fraction.len()).ok().filter(|digits| *digits <= 9)?;
    let part = u128::from(fraction.parse::<u64>().ok()?) * u128::from(scale) / 10u128.pow(digits);
    let total = u128::from(whole.parse::<u64>().ok()?) * u128::from(scale) + part;
    u64::try_from(total).ok()
}

/// The name of a topology, a node or a model: lower-case letters, digits, `-` and `.`, starting with a letter or digit.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(String);

/// Names become parts of file names, etcd keys and NATS subjects.
const NAME_BYTES_MAX: usize = 63;

impl Name {
    /// The name as a string.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
        let starts_well = text.starts_with(|c: char| c.is_ascii_alphanumeric());
        if starts_well && text.len() <= NAME_BYTES_MAX && text.chars().all(allowed) {
            return Ok(Self(text.to_owned()));
        }
        Err(Malformed::new(
            format!("'{text}' is not a name"),
            format!(
                "use up to {NAME_BYTES_MAX} lower-case letters, digits, '-' and '.', starting with a letter or digit"
            ),
        ))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A SHA-256 digest: 64 lower-case hexadecimal digits.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Sha256(String);

impl Sha256 {
    /// The digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Sha256 {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        let digit = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        if text.len() == 64 && text.bytes().all(digit) {
            return Ok(Self(text.to_owned()));
        }
        Err(Malformed::new(
            format!("'{text}' is not a sha256 digest"),
            "write its 64 lower-case hexadecimal digits, as sha256sum prints them",
        ))
    }
}

impl fmt::Display for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Where a topology's model comes from.
///
/// * `smollm2-135m-instruct`: a model file of that name, in `models/` beside the topology or shipped with the program;
/// * `./model.gguf`, `/data/model`: a file or folder, relative to the topology file;
/// * `scripted:./script.yaml`: no model, answers from a script (tests);
/// * `simulated`: no model, made-up tokens (tests, planning).
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum ModelSource {
    /// A model file by name.
    Catalogue(Name),
    /// A file or folder.
    Path(String),
    /// A script of answers.
    Scripted(String),
    /// The simulated model.
    Simulated,
}

impl FromStr for ModelSource {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        if text == "simulated" {
            return Ok(Self::Simulated);
        }
        if let Some(file) = text.strip_prefix("scripted:").filter(|file| !file.is_empty()) {
            return Ok(Self::Scripted(file.to_owned()));
        }
        let is_path = text.starts_with('.') || text.starts_with('/') || text.ends_with(".gguf");
        if is_path && !text.contains("://") {
            return Ok(Self::Path(text.to_owned()));
        }
        text.parse().map(Self::Catalogue).map_err(|_| {
            Malformed::new(
                format!("'{text}' is not a model source"),
                "write the name of a model file, a path that starts with ./ or /, scripted:FILE, or simulated",
            )
        })
    }
}

impl fmt::Display for ModelSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Catalogue(name) => fmt::Display::fmt(name, f),
            Self::Path(path) => f.write_str(path),
            Self::Scripted(file) => write!(f, "scripted:{file}"),
            Self::Simulated => f.write_str("simulated"),
        }
    }
}

#[cfg(test)]
mod tests;
