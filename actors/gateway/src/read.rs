//! Typed reads from a request's JSON. A wrong value is answered with the field, the rule and the value found.

use std::{borrow::Cow, fmt, ops::RangeInclusive};

use crate::{error::ApiError, json::Json};

/// Where in the request a value stands. Lives on the stack; becomes text only when something is wrong.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Path<'p> {
    Field(&'p str),
    Key(&'p Path<'p>, &'p str),
    Index(&'p Path<'p>, usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Path::Field(name) => f.write_str(name),
            Path::Key(parent, key) => write!(f, "{parent}.{key}"),
            Path::Index(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

/// A value and where it stands.
#[derive(Clone, Copy)]
pub(crate) struct Node<'p> {
    pub(crate) json: &'p Json<'p>,
    pub(crate) path: Path<'p>,
}

impl<'p> Node<'p> {
    pub(crate) fn wrong(&self, rule: impl AsRef<str>) -> ApiError {
        ApiError::invalid(self.path.to_string(), rule)
    }

    fn not(&self, wanted: &str) -> ApiError {
        self.wrong(format!("must be {wanted}, not {}", self.json.kind()))
    }

    pub(crate) fn boolean(&self) -> Result<bool, ApiError> {
        match self.json {
            Json::Bool(value) => Ok(*value),
            _ => Err(self.not("true or false")),
        }
    }

    pub(crate) fn text(&self) -> Result<&'p str, ApiError> {
        match self.json {
            Json::Text(text) => Ok(text),
            _ => Err(self.not("a string")),
        }
    }

    pub(crate) fn list(&self) -> Result<&'p [Json<'p>], ApiError> {
        match self.json {
            Json::List(items) => Ok(items),
            _ => Err(self.not("a list")),
        }
    }

    pub(crate) fn object(&self) -> Result<&'p [(Cow<'p, str>, Json<'p>)], ApiError> {
        match self.json {
            Json::Object(entries) => Ok(entries),
            _ => Err(self.not("an object")),
        }
    }

    /// A whole number, also when written as `5.0`.
    pub(crate) fn integer(&self, range: RangeInclusive<i128>) -> Result<i128, ApiError> {
        let value = match self.json {
            Json::Integer(value) => *value,
            Json::Float(value) if value.fract() == 0.0 && value.abs() < 1e18 => *value as i128,
            _ => return Err(self.not("a whole number")),
        };
        if range.contains(&value) {
            return Ok(value);
        }
        Err(self.wrong(format!(
            "{value} is out of range; use a whole number from {} to {}",
            range.start(),
            range.end()
        )))
    }

    pub(crate) fn unsigned(&self, range: RangeInclusive<u32>) -> Result<u32, ApiError> {
        let value = self.integer(i128::from(*range.start())..=i128::from(*range.end()))?;
        Ok(u32::try_from(value).expect("the range lies within u32"))
    }

    pub(crate) fn number(&self, range: RangeInclusive<f64>) -> Result<f32, ApiError> {
        let value = match self.json {
            Json::Integer(value) => *value as f64,
            Json::Float(value) => *value,
            _ => return Err(self.not("a number")),
        };
        if range.contains(&value) {
            return Ok(value as f32);
        }
        Err(self.wrong(format!(
            "{value} is out of range; use a number from {} to {}",
            range.start(),
            range.end()
        )))
    }
}
