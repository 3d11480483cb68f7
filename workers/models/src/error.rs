//! Why a model cannot be opened.

use std::{
    io,
    path::{Path, PathBuf},
};

use crate::{
    gguf::GgufError, safetensors::SafetensorsError, shard::RanksError, spec::SpecError, weights::WeightsError,
};

/// Why a model cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The path is neither a GGUF file nor a folder with a checkpoint.
    #[error("{} is neither a .gguf file nor a folder with config.json and model.safetensors", .0.display())]
    Unknown(PathBuf),
    /// The GGUF file is malformed.
    #[error("{}: {source}", path.display())]
    Gguf {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        source: GgufError,
    },
    /// A safetensors file or its index is malformed.
    #[error("{}: {source}", path.display())]
    Safetensors {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        source: SafetensorsError,
    },
    /// The description names something that is not supported, or contradicts itself.
    #[error("{}: {source}", path.display())]
    Spec {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        source: SpecError,
    },
    /// The tensors do not fit the description.
    #[error("{}: {source}", path.display())]
    Weights {
        /// Which file or folder.
        path: PathBuf,
        /// What is wrong.
        source: WeightsError,
    },
    /// The options ask for something impossible.
    #[error("option {field} is {got}: {rule}")]
    Options {
        /// Which option.
        field: &'static str,
        /// Its value.
        got: String,
        /// What must hold.
        rule: String,
    },
    /// The model cannot be divided so among ranks.
    #[error(transparent)]
    Ranks(#[from] RanksError),
    /// The kernels refuse.
    #[error(transparent)]
    Kernel(#[from] cluster_kernels::KernelError),
}

impl OpenError {
    pub(crate) fn io(path: &Path, source: io::Error) -> Self {
        OpenError::Io {
            path: path.into(),
            source,
        }
    }
}
