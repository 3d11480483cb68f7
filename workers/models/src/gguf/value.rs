//! Metadata values: the types of the format, and their conversion to types of ours.

use super::{GgufError, reader::Reader};

/// How deep arrays may lie in arrays. Real files do not nest them at all.
const NESTING_MAX: u32 = 4;

/// The type of a value in the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the names of the format say all there is")]
pub enum Kind {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F32,
    Bool,
    Str,
    Array,
    U64,
    I64,
    F64,
}

impl Kind {
    const ALL: [Kind; 13] = [
        Kind::U8,
        Kind::I8,
        Kind::U16,
        Kind::I16,
        Kind::U32,
        Kind::I32,
        Kind::F32,
        Kind::Bool,
        Kind::Str,
        Kind::Array,
        Kind::U64,
        Kind::I64,
        Kind::F64,
    ];

    /// The type with this number in the file.
    pub(super) fn from_code(code: u32) -> Option<Self> {
        Self::ALL.get(code as usize).copied()
    }

    /// Bytes of a value; `None` where that depends on the value.
    fn size(self) -> Option<u64> {
        match self {
            Kind::U8 | Kind::I8 | Kind::Bool => Some(1),
            Kind::U16 | Kind::I16 => Some(2),
            Kind::U32 | Kind::I32 | Kind::F32 => Some(4),
            Kind::U64 | Kind::I64 | Kind::F64 => Some(8),
            Kind::Str | Kind::Array => None,
        }
    }
}

/// A metadata value. Integers and floats are widened; nothing is lost by that.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Value<'a> {
    /// An integer without sign.
    Unsigned(u64),
    /// An integer with sign.
    Signed(i64),
    /// A number.
    Float(f64),
    /// Yes or no.
    Bool(bool),
    /// Text.
    Str(&'a str),
    /// Values of one type.
    Array(Array<'a>),
}

/// An array value, decoded while it is iterated.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Array<'a> {
    /// The type of its elements.
    pub kind: Kind,
    /// How many there are.
    pub len: usize,
    bytes: &'a [u8],
}

impl<'a> Array<'a> {
    /// The elements in order.
    pub fn iter(&self) -> impl Iterator<Item = Result<Value<'a>, GgufError>> + use<'a> {
        let kind = self.kind;
        let mut reader = Reader::new(self.bytes, 0);
        (0..self.len).map(move |_| Value::read(&mut reader, kind, "array element"))
    }
}

impl<'a> Value<'a> {
    pub(super) fn read(reader: &mut Reader<'a>, kind: Kind, key: &str) -> Result<Self, GgufError> {
        Ok(match kind {
            Kind::U8 => Value::Unsigned(u8::from_le_bytes(reader.array()?).into()),
            Kind::I8 => Value::Signed(i8::from_le_bytes(reader.array()?).into()),
            Kind::U16 => Value::Unsigned(u16::from_le_bytes(reader.array()?).into()),
            Kind::I16 => Value::Signed(i16::from_le_bytes(reader.array()?).into()),
            Kind::U32 => Value::Unsigned(reader.u32()?.into()),
            Kind::I32 => Value::Signed(i32::from_le_bytes(reader.array()?).into()),
            Kind::F32 => Value::Float(f32::from_le_bytes(reader.array()?).into()),
            Kind::Bool => Value::Bool(reader.array::<1>()? != [0]),
            Kind::Str => Value::Str(reader.string()?),
            Kind::U64 => Value::Unsigned(reader.u64()?),
            Kind::I64 => Value::Signed(i64::from_le_bytes(reader.array()?)),
            Kind::F64 => Value::Float(f64::from_le_bytes(reader.array()?)),
            Kind::Array => Value::Array(read_array(reader, key)?),
        })
    }

    pub(super) fn describe(&self) -> String {
        match self {
            Value::Unsigned(value) => format!("the integer {value}"),
            Value::Signed(value) => format!("the integer {value}"),
            Value::Float(value) => format!("the number {value}"),
            Value::Bool(value) => format!("the truth value {value}"),
            Value::Str(value) => format!("the string '{}'", value.chars().take(40).collect::<String>()),
            Value::Array(array) => format!("an array of {} {:?}", array.len, array.kind),
        }
    }
}

fn read_array<'a>(reader: &mut Reader<'a>, key: &str) -> Result<Array<'a>, GgufError> {
    let (kind, len) = array_head(reader, key)?;
    let start = reader.at();
    skip_elements(reader, kind, len, key, 1)?;
    let total = (reader.at() - start) as u64;
    let bytes = Reader::new(reader.bytes(), start).take(total)?;
    Ok(Array {
        kind,
        len: len as usize,
        bytes,
    })
}

fn array_head(reader: &mut Reader<'_>, key: &str) -> Result<(Kind, u64), GgufError> {
    let code = reader.u32()?;
    let kind = Kind::from_code(code).ok_or_else(|| GgufError::ValueType { key: key.into(), code })?;
    Ok((kind, reader.u64()?))
}

/// Passes over a value, checking all its lengths.
pub(super) fn skip(reader: &mut Reader<'_>, kind: Kind, key: &str) -> Result<(), GgufError> {
    skip_nested(reader, kind, key, 0)
}

fn skip_nested(reader: &mut Reader<'_>, kind: Kind, key: &str, depth: u32) -> Result<(), GgufError> {
    match kind {
        Kind::Str => {
            let len = reader.u64()?;
            reader.take(len)?;
        }
        Kind::Array if depth >= NESTING_MAX => return Err(GgufError::Nesting(key.into())),
        Kind::Array => {
            let (kind, len) = array_head(reader, key)?;
            skip_elements(reader, kind, len, key, depth + 1)?;
        }
        _ => {
            reader.take(kind.size().unwrap_or(0))?;
        }
    }
    Ok(())
}

fn skip_elements(reader: &mut Reader<'_>, kind: Kind, len: u64, key: &str, depth: u32) -> Result<(), GgufError> {
    if let Some(size) = kind.size() {
        reader.take(len.saturating_mul(size))?;
        return Ok(());
    }
    // Every element takes at least its length's eight bytes, so a wrong count ends at the end of the file.
    for _ in 0..len {
        skip_nested(reader, kind, key, depth)?;
    }
    Ok(())
}

/// A type that metadata values can be read as.
pub trait FromValue<'a>: Sized {
    /// What an error message calls it.
    const NAME: &'static str;

    /// The value as this type, if it is one.
    fn from_value(value: Value<'a>) -> Option<Self>;
}

macro_rules! from_integers {
    ($($type:ty),*) => {$(
        impl<'a> FromValue<'a> for $type {
            const NAME: &'static str = concat!("an integer (", stringify!($type), ")");

            fn from_value(value: Value<'a>) -> Option<Self> {
                match value {
                    Value::Unsigned(value) => value.try_into().ok(),
                    Value::Signed(value) => value.try_into().ok(),
                    _ => None,
                }
            }
        }
    )*};
}

from_integers!(u32, i32, u64, usize);

impl<'a> FromValue<'a> for f32 {
    const NAME: &'static str = "a number";

    fn from_value(value: Value<'a>) -> Option<Self> {
        match value {
            Value::Float(value) => Some(value as f32),
            Value::Unsigned(value) => Some(value as f32),
            Value::Signed(value) => Some(value as f32),
            _ => None,
        }
    }
}

impl<'a> FromValue<'a> for bool {
    const NAME: &'static str = "a truth value";

    fn from_value(value: Value<'a>) -> Option<Self> {
        match value {
            Value::Bool(value) => Some(value),
            _ => None,
        }
    }
}

impl<'a> FromValue<'a> for &'a str {
    const NAME: &'static str = "a string";

    fn from_value(value: Value<'a>) -> Option<Self> {
        match value {
            Value::Str(value) => Some(value),
            _ => None,
        }
    }
}

impl<'a, T: FromValue<'a>> FromValue<'a> for Vec<T> {
    const NAME: &'static str = "an array of matching type";

    fn from_value(value: Value<'a>) -> Option<Self> {
        match value {
            Value::Array(array) => array.iter().map(|item| T::from_value(item.ok()?)).collect(),
            _ => None,
        }
    }
}
