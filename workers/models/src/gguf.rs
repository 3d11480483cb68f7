//! A reader of GGUF files, versions 2 and 3: metadata and tensors of one file. It does not know what a key means.
//!
//! ```text
//!  magic, version, counts │ key, type, value … │ name, dims, type, offset … │ padding │ tensor bytes …
//! ```
//! Every length and offset is checked against the file before it is used, so a malformed file gives an error that says
//! where, never a panic and never an allocation larger than the file. Values are decoded when they are asked for: a
//! vocabulary of 150,000 strings costs nothing to skip.

mod reader;
mod value;

use std::{collections::HashMap, ops::Range, path::Path};

use cluster_kernels::DType;

use crate::{error::OpenError, mapping::Mapping};
use reader::Reader;
pub use value::{Array, FromValue, Kind, Value};

#[cfg(test)]
mod tests;

const MAGIC: &[u8] = b"GGUF";
const DEFAULT_ALIGNMENT: u64 = 32;
const DIMS_MAX: u32 = 4;

/// What is wrong with a GGUF file.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum GgufError {
    /// The first bytes are others.
    #[error("not a GGUF file: it starts with {0:02x?}")]
    Magic(Vec<u8>),
    /// A layout this reader does not know.
    #[error("GGUF version {0} is not supported, only 2 and 3 (little-endian)")]
    Version(u32),
    /// The file ends too early.
    #[error("file ends early: {need} bytes at offset {at}, {have} are there")]
    Truncated {
        /// Where in the file.
        at: u64,
        /// How many bytes belong there.
        need: u64,
        /// How many are left.
        have: u64,
    },
    /// A type number that is not defined.
    #[error("value type {code} of '{key}' is not defined")]
    ValueType {
        /// The key it belongs to.
        key: String,
        /// The number.
        code: u32,
    },
    /// Arrays within arrays within arrays.
    #[error("'{0}' nests arrays too deeply")]
    Nesting(String),
    /// A string that is not UTF-8.
    #[error("string at offset {at} is not UTF-8")]
    Utf8 {
        /// Where in the file.
        at: u64,
    },
    /// The same key or tensor name twice.
    #[error("'{0}' occurs twice")]
    Twice(String),
    /// `general.alignment` is no power of two.
    #[error("alignment {0} is not a power of two of at least 8")]
    Alignment(u64),
    /// A tensor of a type the kernels do not know.
    #[error("tensor '{name}' has type {code}, which is not supported")]
    TensorType {
        /// Which tensor.
        name: String,
        /// The number in the file.
        code: u32,
    },
    /// A tensor with impossible dimensions.
    #[error("tensor '{name}' has dimensions {dims:?}: {why}")]
    TensorShape {
        /// Which tensor.
        name: String,
        /// As in the file, fastest first.
        dims: Vec<u64>,
        /// What is wrong with them.
        why: &'static str,
    },
    /// A tensor that lies outside the file.
    #[error("tensor '{name}' needs bytes {offset}..{end} of the data, which has {have}")]
    TensorOutside {
        /// Which tensor.
        name: String,
        /// Where it starts, from the start of the data.
        offset: u64,
        /// Where it ends.
        end: u64,
        /// Bytes of the data.
        have: u64,
    },
    /// A key that is needed.
    #[error("metadata has no '{0}'")]
    Missing(String),
    /// A key with another type than expected.
    #[error("metadata '{key}' is {got}, expected {expected}")]
    WrongType {
        /// Which key.
        key: String,
        /// What was asked for.
        expected: &'static str,
        /// What the file has.
        got: String,
    },
}

/// A tensor of the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TensorEntry {
    /// Its name.
    pub name: String,
    /// How its values are stored.
    pub dtype: DType,
    /// Its dimensions, slowest first (the file lists them the other way round).
    pub shape: Vec<usize>,
    /// Where it lies in the file.
    range: Range<usize>,
}

/// An open GGUF file.
#[derive(Debug)]
pub struct GgufFile {
    bytes: Mapping,
    version: u32,
    metadata: HashMap<String, Located>,
    tensors: Vec<TensorEntry>,
    by_name: HashMap<String, usize>,
}

/// Where a value lies.
#[derive(Clone, Debug)]
struct Located {
    kind: Kind,
    at: usize,
}

impl GgufFile {
    /// Maps and checks a file.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        let bytes = Mapping::open(path).map_err(|source| OpenError::io(path, source))?;
        Self::parse(bytes).map_err(|source| OpenError::Gguf {
            path: path.into(),
            source,
        })
    }

    /// Checks a file that is in memory.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, GgufError> {
        Self::parse(Mapping::Memory(bytes))
    }

    fn parse(bytes: Mapping) -> Result<Self, GgufError> {
        let mut reader = Reader::new(&bytes, 0);
        let version = header(&mut reader)?;
        let tensor_count = reader.u64()?;
        let key_count = reader.u64()?;
        let metadata = metadata(&mut reader, key_count)?;
        let alignment = alignment(&bytes, &metadata)?;
        let drafts = tensor_drafts(&mut reader, tensor_count)?;
        let data_start = (reader.at() as u64).next_multiple_of(alignment);
        let tensors = place(drafts, data_start, bytes.len() as u64)?;
        let by_name = index(&tensors)?;
        Ok(Self {
            bytes,
            version,
            metadata,
            tensors,
            by_name,
        })
    }

    /// 2 or 3.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// The whole file.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The metadata keys, in no particular order.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.metadata.keys().map(String::as_str)
    }

    /// A value, as the file has it.
    pub fn value(&self, key: &str) -> Result<Option<Value<'_>>, GgufError> {
        let Some(located) = self.metadata.get(key) else {
            return Ok(None);
        };
        Value::read(&mut Reader::new(&self.bytes, located.at), located.kind, key).map(Some)
    }

    /// A value as a `bool`, an integer, `f32`, `&str` or a `Vec` of those; `None` when the file lacks the key.
    pub fn get<'a, T: FromValue<'a>>(&'a self, key: &str) -> Result<Option<T>, GgufError> {
        let Some(value) = self.value(key)? else {
            return Ok(None);
        };
        let got = value.describe();
        T::from_value(value).map(Some).ok_or_else(|| GgufError::WrongType {
            key: key.into(),
            expected: T::NAME,
            got,
        })
    }

    /// A value that must be there.
    pub fn require<'a, T: FromValue<'a>>(&'a self, key: &str) -> Result<T, GgufError> {
        self.get(key)?.ok_or_else(|| GgufError::Missing(key.into()))
    }

    /// All tensors, in the order of the file.
    pub fn tensors(&self) -> &[TensorEntry] {
        &self.tensors
    }

    /// A tensor by name.
    pub fn tensor(&self, name: &str) -> Option<&TensorEntry> {
        self.by_name.get(name).map(|&index| &self.tensors[index])
    }

    /// A tensor's bytes.
    pub fn tensor_bytes(&self, tensor: &TensorEntry) -> &[u8] {
        &self.bytes[tensor.range.clone()]
    }
}

fn header(reader: &mut Reader<'_>) -> Result<u32, GgufError> {
    let magic = reader.take(MAGIC.len() as u64)?;
    if magic != MAGIC {
        return Err(GgufError::Magic(magic.into()));
    }
    let version = reader.u32()?;
    if version != 2 && version != 3 {
        return Err(GgufError::Version(version));
    }
    Ok(version)
}

fn metadata(reader: &mut Reader<'_>, count: u64) -> Result<HashMap<String, Located>, GgufError> {
    let mut metadata = HashMap::new();
    for _ in 0..count {
        let key = reader.string()?.to_owned();
        let code = reader.u32()?;
        let kind = Kind::from_code(code).ok_or_else(|| GgufError::ValueType { key: key.clone(), code })?;
        let at = reader.at();
        value::skip(reader, kind, &key)?;
        if metadata.contains_key(&key) {
            return Err(GgufError::Twice(key));
        }
        metadata.insert(key, Located { kind, at });
    }
    Ok(metadata)
}

fn alignment(bytes: &[u8], metadata: &HashMap<String, Located>) -> Result<u64, GgufError> {
    let key = "general.alignment";
    let Some(located) = metadata.get(key) else {
        return Ok(DEFAULT_ALIGNMENT);
    };
    let value = Value::read(&mut Reader::new(bytes, located.at), located.kind, key)?;
    let alignment = u64::from_value(value).unwrap_or(0);
    if alignment < 8 || !alignment.is_power_of_two() || alignment > 1 << 30 {
        return Err(GgufError::Alignment(alignment));
    }
    Ok(alignment)
}

/// A tensor entry before it is known where the data starts.
struct Draft {
    name: String,
    dims: Vec<u64>,
    dtype: DType,
    offset: u64,
}

fn tensor_drafts(reader: &mut Reader<'_>, count: u64) -> Result<Vec<Draft>, GgufError> {
    let mut drafts = Vec::new();
    for _ in 0..count {
        let name = reader.string()?.to_owned();
        let dim_count = reader.u32()?;
        if dim_count == 0 || dim_count > DIMS_MAX {
            return Err(GgufError::TensorShape {
                name,
                dims: Vec::new(),
                why: "between 1 and 4 of them are possible",
            });
        }
        let dims = (0..dim_count).map(|_| reader.u64()).collect::<Result<Vec<_>, _>>()?;
        let code = reader.u32()?;
        let dtype = dtype_of(code).ok_or_else(|| GgufError::TensorType {
            name: name.clone(),
            code,
        })?;
        let offset = reader.u64()?;
        drafts.push(Draft {
            name,
            dims,
            dtype,
            offset,
        });
    }
    Ok(drafts)
}

fn place(drafts: Vec<Draft>, data_start: u64, file_len: u64) -> Result<Vec<TensorEntry>, GgufError> {
    let data_len = file_len.saturating_sub(data_start);
    drafts
        .into_iter()
        .map(|draft| {
            let size = size_of_tensor(&draft)?;
            let end = draft.offset.checked_add(size).filter(|&end| end <= data_len);
            let Some(end) = end else {
                return Err(GgufError::TensorOutside {
                    end: draft.offset.saturating_add(size),
                    name: draft.name,
                    offset: draft.offset,
                    have: data_len,
                });
            };
            Ok(TensorEntry {
                name: draft.name,
                dtype: draft.dtype,
                shape: draft.dims.iter().rev().map(|&dim| dim as usize).collect(),
                range: (data_start + draft.offset) as usize..(data_start + end) as usize,
            })
        })
        .collect()
}

fn size_of_tensor(draft: &Draft) -> Result<u64, GgufError> {
    let wrong = |why| GgufError::TensorShape {
        name: draft.name.clone(),
        dims: draft.dims.clone(),
        why,
    };
    let block_len = draft.dtype.block_len() as u64;
    if draft.dims.contains(&0) {
        return Err(wrong("a dimension is 0"));
    }
    if !draft.dims[0].is_multiple_of(block_len) {
        return Err(wrong(
            "the row length is not a multiple of the block length of its type",
        ));
    }
    let values = draft
        .dims
        .iter()
        .try_fold(1_u64, |product, &dim| product.checked_mul(dim));
    values
        .and_then(|values| (values / block_len).checked_mul(draft.dtype.block_bytes() as u64))
        .ok_or_else(|| wrong("their product overflows"))
}

fn index(tensors: &[TensorEntry]) -> Result<HashMap<String, usize>, GgufError> {
    let mut by_name = HashMap::with_capacity(tensors.len());
    for (index, tensor) in tensors.iter().enumerate() {
        if by_name.insert(tensor.name.clone(), index).is_some() {
            return Err(GgufError::Twice(tensor.name.clone()));
        }
    }
    Ok(by_name)
}

/// The type numbers of the format, as far as the kernels know them.
fn dtype_of(code: u32) -> Option<DType> {
    Some(match code {
        0 => DType::F32,
        1 => DType::F16,
        2 => DType::Q4_0,
        3 => DType::Q4_1,
        6 => DType::Q5_0,
        7 => DType::Q5_1,
        8 => DType::Q8_0,
        10 => DType::Q2K,
        11 => DType::Q3K,
        12 => DType::Q4K,
        13 => DType::Q5K,
        14 => DType::Q6K,
        30 => DType::BF16,
        _ => return None,
    })
}
