//! Tensors of a folder with safetensors files: one file, or several with an index. The format is the `safetensors` crate's
//! business, which checks lengths, offsets and overlaps; this file keeps where each tensor lies.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ops::Range,
    path::Path,
};

use ::safetensors::{Dtype, SafeTensorError, SafeTensors};
use cluster_kernels::DType;
use serde::Deserialize;

use crate::{checkpoint::Tensor, error::OpenError, mapping::Mapping, weights::WeightsError};

const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
/// The header is preceded by its length.
const LENGTH_BYTES: usize = 8;

/// What is wrong with a safetensors file or its index.
#[derive(Debug, thiserror::Error)]
pub enum SafetensorsError {
    /// The header or the offsets.
    #[error("not a valid safetensors file: {0}")]
    Format(#[from] SafeTensorError),
    /// The index.
    #[error("not a valid index: {0}")]
    Index(serde_json::Error),
    /// The index names a file outside the folder.
    #[error("the index names '{0}', which is not a plain file name")]
    FileName(String),
    /// The index promises a tensor that the file lacks.
    #[error("the index places tensor '{tensor}' in '{file}', which does not have it")]
    Absent {
        /// Which tensor.
        tensor: String,
        /// In which file it should be.
        file: String,
    },
}

/// The mapped files of one checkpoint.
#[derive(Debug)]
pub(crate) struct SafetensorsFolder {
    files: Vec<Mapping>,
    tensors: HashMap<String, Entry>,
}

#[derive(Debug)]
struct Entry {
    file: usize,
    dtype: Dtype,
    shape: Vec<usize>,
    range: Range<usize>,
}

/// A tensor as it lies in a file, of a type that need not be a number's.
pub(crate) struct RawTensor<'a> {
    pub(crate) dtype: Dtype,
    pub(crate) shape: &'a [usize],
    pub(crate) bytes: &'a [u8],
}

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

impl SafetensorsFolder {
    /// Maps the files of a folder.
    pub(crate) fn open(folder: &Path) -> Result<Self, OpenError> {
        let mut opened = Self {
            files: Vec::new(),
            tensors: HashMap::new(),
        };
        let index_path = folder.join(INDEX);
        if !index_path.exists() {
            opened.add(&folder.join(SINGLE))?;
            return Ok(opened);
        }
        let index = read_index(&index_path)?;
        for file in index.values().collect::<BTreeSet<_>>() {
            opened.add(&folder.join(file))?;
        }
        for (tensor, file) in index {
            if !opened.tensors.contains_key(&tensor) {
                return Err(wrong(&index_path, SafetensorsError::Absent { tensor, file }));
            }
        }
        Ok(opened)
    }

    fn add(&mut self, path: &Path) -> Result<(), OpenError> {
        let bytes = Mapping::open(path).map_err(|source| OpenError::io(path, source))?;
        let (header_len, metadata) = SafeTensors::read_metadata(&bytes).map_err(|source| wrong(path, source.into()))?;
        let data_start = LENGTH_BYTES + header_len;
        for (name, info) in metadata.tensors() {
            let (start, end) = info.data_offsets;
            let entry = Entry {
                file: self.files.len(),
                dtype: info.dtype,
                shape: info.shape.clone(),
                range: data_start + start..data_start + end,
            };
            self.tensors.insert(name, entry);
        }
        self.files.push(bytes);
        Ok(())
    }

    /// The bytes of the files, in the order of their names.
    pub(crate) fn files(&self) -> impl Iterator<Item = &[u8]> {
        self.files.iter().map(|file| &**file)
    }

    /// Whether there is such a tensor.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// The names of all tensors.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// Bytes of the tensors that `counts` is for.
    pub(crate) fn tensor_bytes(&self, counts: impl Fn(&str) -> bool) -> u64 {
        let counted = self.tensors.iter().filter(|(name, _)| counts(name));
        counted.map(|(_, entry)| entry.range.len() as u64).sum()
    }

    /// A tensor of any type.
    pub(crate) fn raw(&self, name: &str) -> Option<RawTensor<'_>> {
        let entry = self.tensors.get(name)?;
        Some(RawTensor {
            dtype: entry.dtype,
            shape: &entry.shape,
            bytes: &self.files[entry.file][entry.range.clone()],
        })
    }

    /// A tensor that must be there, of a type that the kernels know.
    pub(crate) fn tensor(&self, name: &str) -> Result<Tensor<'_>, WeightsError> {
        let entry = self
            .tensors
            .get(name)
            .ok_or_else(|| WeightsError::Missing(name.into()))?;
        let dtype = match entry.dtype {
            Dtype::F32 => DType::F32,
            Dtype::F16 => DType::F16,
            Dtype::BF16 => DType::BF16,
            other => {
                return Err(WeightsError::DType {
                    name: name.into(),
                    dtype: format!("{other:?}"),
                });
            }
        };
        Ok(Tensor {
            dtype,
            shape: &entry.shape,
            bytes: &self.files[entry.file][entry.range.clone()],
        })
    }
}

fn read_index(path: &Path) -> Result<BTreeMap<String, String>, OpenError> {
    let bytes = std::fs::read(path).map_err(|source| OpenError::io(path, source))?;
    let index: Index = serde_json::from_slice(&bytes).map_err(|source| wrong(path, SafetensorsError::Index(source)))?;
    for file in index.weight_map.values() {
        if Path::new(file).file_name().is_none_or(|name| name != file.as_str()) {
            return Err(wrong(path, SafetensorsError::FileName(file.clone())));
        }
    }
    Ok(index.weight_map)
}

fn wrong(path: &Path, source: SafetensorsError) -> OpenError {
    OpenError::Safetensors {
        path: path.into(),
        source,
    }
}
