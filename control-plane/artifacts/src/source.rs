//! The network sources. Each puts the verified file into its place, or says why it cannot.

pub(crate) mod hf;
pub(crate) mod pypi;

use std::{fs, io, path::Path};

use crate::{
    Artifact, FetchError,
    error::is_disk_full,
    verify::{self, CopyError},
};

/// Why a source did not deliver.
#[derive(Debug)]
pub(crate) enum SourceError {
    /// The next source may do better.
    Failed(String),
    /// The cache folder is the trouble, whatever the source.
    Storage(FetchError),
}

impl SourceError {
    fn failed(reason: impl ToString) -> Self {
        SourceError::Failed(reason.to_string())
    }

    /// The error of a failed `action` on `path`, a path of the cache.
    fn storing(artifact: &Artifact, action: &'static str, path: &Path, error: io::Error) -> Self {
        SourceError::Storage(FetchError::storing(artifact, action, path.into(), error))
    }
}

/// Moves a downloaded file to its place if it is right; removes it if not.
fn adopt(artifact: &Artifact, downloaded: &Path, file: &Path) -> Result<(), SourceError> {
    let reading = |error| SourceError::storing(artifact, "read", downloaded, error);
    let size = fs::metadata(downloaded).map_err(reading)?.len();
    let sha256 = verify::digest_of(downloaded).map_err(reading)?;
    if let Err(mismatch) = (verify::Copied { size, sha256 }).check(artifact.size, artifact.sha256) {
        fs::remove_file(downloaded).map_err(|error| SourceError::storing(artifact, "remove", downloaded, error))?;
        return Err(SourceError::Failed(format!("the file was removed: {mismatch}")));
    }
    fs::rename(downloaded, file).map_err(|error| SourceError::storing(artifact, "write", file, error))
}

/// Names the side on which copying into the cache failed.
fn copy_failed(artifact: &Artifact, to: &Path, error: CopyError) -> SourceError {
    match error {
        CopyError::Read(error) if !is_disk_full(&error) => SourceError::Failed(format!("reading failed: {error}")),
        CopyError::Read(error) | CopyError::Write(error) => SourceError::storing(artifact, "write", to, error),
    }
}
