//! A model on disk, in either layout: its description, its tensors by name, its bytes.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use cluster_kernels::DType;

use crate::{
    error::OpenError,
    gguf::GgufFile,
    names::Naming,
    quantized::Description,
    safetensors::SafetensorsFolder,
    spec::{self, ModelSpec, Norm, SpecError},
    weights::WeightsError,
};

/// A checkpoint whose files are mapped and checked.
#[derive(Debug)]
pub(crate) enum Checkpoint {
    Gguf(Arc<GgufFile>),
    Folder {
        config: Vec<u8>,
        /// hf_quant_config.json, where there is one.
        quantization: Option<Vec<u8>>,
        description: Description,
        files: SafetensorsFolder,
    },
}

/// A tensor as it lies in a file.
#[derive(Clone, Copy)]
pub(crate) struct Tensor<'a> {
    pub(crate) dtype: DType,
    pub(crate) shape: &'a [usize],
    pub(crate) bytes: &'a [u8],
}

impl Checkpoint {
    /// Opens a GGUF file, or a folder with a config.json, and reads its description.
    pub(crate) fn open(path: &Path) -> Result<(Self, ModelSpec), OpenError> {
        if path.is_dir() {
            return Self::open_folder(path);
        }
        if !path
            .extension()
            .is_some_and(|extension| extension.eq_ignore_ascii_case("gguf"))
        {
            std::fs::metadata(path).map_err(|source| OpenError::io(path, source))?;
            return Err(OpenError::Unknown(path.into()));
        }
        let file = Arc::new(GgufFile::open(path)?);
        let spec = spec::from_gguf(&file).map_err(|source| wrong(path.into(), source))?;
        Ok((Checkpoint::Gguf(file), spec))
    }

    fn open_folder(path: &Path) -> Result<(Self, ModelSpec), OpenError> {
        let config_path = path.join("config.json");
        if !config_path.exists() {
            return Err(OpenError::Unknown(path.into()));
        }
        let config = std::fs::read(&config_path).map_err(|source| OpenError::io(&config_path, source))?;
        let spec = spec::from_config(&config).map_err(|source| wrong(config_path, source))?;
        let files = SafetensorsFolder::open(path)?;
        let quantization = read_if_there(&path.join("hf_quant_config.json"))?;
        let folder = Checkpoint::Folder {
            description: Description::read(&config, quantization.as_deref()),
            config,
            quantization,
            files,
        };
        Ok((folder, spec))
    }

    /// How this checkpoint calls its tensors.
    pub(crate) fn naming(&self, spec: &ModelSpec) -> Naming {
        match self {
            Checkpoint::Gguf(_) => Naming::Gguf,
            // A language model that is saved without the other parts has no name of its own.
            Checkpoint::Folder { files, .. } => Naming::HuggingFace {
                post_norms: spec.layers.iter().any(|layer| layer.post_ffn != Norm::None),
                nested: spec.family.nested() && !files.has("model.embed_tokens.weight"),
            },
        }
    }

    /// A tensor that must be there.
    pub(crate) fn tensor(&self, name: &str) -> Result<Tensor<'_>, WeightsError> {
        match self {
            Checkpoint::Gguf(file) => {
                let entry = file.tensor(name).ok_or_else(|| WeightsError::Missing(name.into()))?;
                Ok(Tensor {
                    dtype: entry.dtype,
                    shape: &entry.shape,
                    bytes: file.tensor_bytes(entry),
                })
            }
            Checkpoint::Folder { files, .. } => files.tensor(name),
        }
    }

    /// Whether there is such a tensor.
    pub(crate) fn has(&self, name: &str) -> bool {
        match self {
            Checkpoint::Gguf(file) => file.tensor(name).is_some(),
            Checkpoint::Folder { files, .. } => files.has(name),
        }
    }

    /// The names of all tensors.
    pub(crate) fn names(&self) -> Vec<&str> {
        match self {
            Checkpoint::Gguf(file) => file.tensors().iter().map(|tensor| tensor.name.as_str()).collect(),
            Checkpoint::Folder { files, .. } => files.names().collect(),
        }
    }

    /// Bytes of the language model's tensors in the files.
    pub(crate) fn tensor_bytes(&self, naming: Naming) -> u64 {
        match self {
            Checkpoint::Gguf(file) => {
                let sizes = file
                    .tensors()
                    .iter()
                    .map(|tensor| file.tensor_bytes(tensor).len() as u64);
                sizes.sum()
            }
            Checkpoint::Folder { files, .. } => files.tensor_bytes(|name| !naming.skips(name)),
        }
    }

    /// All bytes that say what the model computes.
    pub(crate) fn contents(&self) -> Vec<&[u8]> {
        match self {
            Checkpoint::Gguf(file) => vec![file.bytes()],
            Checkpoint::Folder {
                config,
                quantization,
                files,
                ..
            } => {
                let described = std::iter::once(&**config).chain(quantization.as_deref());
                described.chain(files.files()).collect()
            }
        }
    }
}

fn read_if_there(path: &Path) -> Result<Option<Vec<u8>>, OpenError> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(OpenError::io(path, error)),
    }
}

fn wrong(path: PathBuf, source: SpecError) -> OpenError {
    OpenError::Spec { path, source }
}
