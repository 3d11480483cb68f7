//! Why a file is not there, and what to do about it.

use std::{fmt, io, path::PathBuf};

use crate::{Artifact, Sha256Digest, progress::human_bytes};

/// A file could not be had.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// No source delivered it. Printed over several lines: file, attempts, remedy.
    #[error("{0}")]
    Unreachable(Box<Unreachable>),

    /// The name would lead out of the cache folder.
    #[error("'{0}' is not a plain file name; use letters, digits, '.', '-' and '_'")]
    Name(String),

    /// The disk is full.
    #[error(
        "no space left in {} for {file_name} ({}); free some, or set CLUSTER_CACHE to a folder on another disk",
        folder.display(), human_bytes(*size)
    )]
    DiskFull {
        /// Where it should go.
        folder: PathBuf,
        /// What should go there.
        file_name: String,
        /// How much it takes.
        size: u64,
    },

    /// The cache folder cannot be used.
    #[error("cannot {action} {}: {source}; the cache folder is set by CLUSTER_CACHE", path.display())]
    Cache {
        /// Such as `create`.
        action: &'static str,
        /// What it was tried on.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// All that was tried in vain.
#[derive(Debug)]
pub struct Unreachable {
    /// The file's name.
    pub file_name: String,
    /// Its length in bytes.
    pub size: u64,
    /// Its sha256.
    pub sha256: Sha256Digest,
    /// Where it can be put by hand.
    pub folder: PathBuf,
    /// What was tried, in order.
    pub attempts: Vec<Attempt>,
}

/// One source that did not deliver.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attempt {
    /// The source.
    pub source: String,
    /// Why not.
    pub reason: String,
}

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "cannot get {} ({} bytes, sha256 {})",
            self.file_name, self.size, self.sha256
        )?;
        for Attempt { source, reason } in &self.attempts {
            writeln!(f, "  tried {source}\n    {reason}")?;
        }
        if self.attempts.is_empty() {
            writeln!(f, "  it has no sources")?;
        }
        write!(
            f,
            "put the file into {} by hand, or make one of its sources reachable",
            self.folder.display()
        )
    }
}

impl FetchError {
    /// The error of a failed `action` on `path` while `artifact` was stored.
    pub(crate) fn storing(artifact: &Artifact, action: &'static str, path: PathBuf, source: io::Error) -> Self {
        if is_disk_full(&source) {
            FetchError::DiskFull {
                folder: path.parent().map(Into::into).unwrap_or(path),
                file_name: artifact.file_name.clone(),
                size: artifact.size,
            }
        } else {
            FetchError::Cache { action, path, source }
        }
    }
}

pub(crate) fn is_disk_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
