//! Whether bytes are the artifact's bytes, and a record of it, so that a start need not hash the file again.

use std::{
    fmt,
    fs::{self, File},
    io::{self, Read, Write},
    path::{Path, PathBuf},
    time::UNIX_EPOCH,
};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{Artifact, Sha256Digest};

/// Bytes that are not the artifact's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mismatch {
    Size {
        found: u64,
        expected: u64,
    },
    Digest {
        found: Sha256Digest,
        expected: Sha256Digest,
    },
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mismatch::Size { found, expected } => write!(f, "it has {found} bytes instead of {expected}"),
            Mismatch::Digest { found, expected } => write!(f, "its sha256 is {found} instead of {expected}"),
        }
    }
}

/// Why `copy` stopped.
#[derive(Debug)]
pub(crate) enum CopyError {
    Read(io::Error),
    Write(io::Error),
}

/// What went through `copy`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Copied {
    pub(crate) size: u64,
    pub(crate) sha256: Sha256Digest,
}

impl Copied {
    pub(crate) fn check(self, size: u64, sha256: Sha256Digest) -> Result<(), Mismatch> {
        if self.size != size {
            return Err(Mismatch::Size {
                found: self.size,
                expected: size,
            });
        }
        check_digest(self.sha256, sha256)
    }
}

pub(crate) fn check_digest(found: Sha256Digest, expected: Sha256Digest) -> Result<(), Mismatch> {
    if found == expected {
        Ok(())
    } else {
        Err(Mismatch::Digest { found, expected })
    }
}

/// Copies and hashes in one pass; `moved` hears the position. Stops behind `size_max` bytes: more is wrong anyway.
pub(crate) fn copy(
    mut from: impl Read,
    mut to: impl Write,
    size_max: u64,
    moved: &dyn Fn(u64),
) -> Result<Copied, CopyError> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 256 << 10];
    let mut size = 0;
    while size <= size_max {
        let length = match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(CopyError::Read(error)),
        };
        hasher.update(&buffer[..length]);
        to.write_all(&buffer[..length]).map_err(CopyError::Write)?;
        size += length as u64;
        moved(size);
    }
    to.flush().map_err(CopyError::Write)?;
    Ok(Copied {
        size,
        sha256: Sha256Digest(hasher.finalize().into()),
    })
}

/// The sha256 of a whole file.
pub(crate) fn digest_of(path: &Path) -> io::Result<Sha256Digest> {
    match copy(File::open(path)?, io::sink(), u64::MAX - 1, &|_| {}) {
        Ok(copied) => Ok(copied.sha256),
        Err(CopyError::Read(error) | CopyError::Write(error)) => Err(error),
    }
}

/// Whether `path` is the artifact. A record that still fits the file spares the hashing; otherwise it is written anew.
pub(crate) fn check_file(path: &Path, artifact: &Artifact, record: &Path) -> io::Result<Result<(), Mismatch>> {
    let size = fs::metadata(path)?.len();
    if size != artifact.size {
        return Ok(Err(Mismatch::Size {
            found: size,
            expected: artifact.size,
        }));
    }
    let now = Record::of(path, artifact)?;
    if Record::read(record).is_some_and(|then| then == now) {
        return Ok(Ok(()));
    }
    let checked = check_digest(digest_of(path)?, artifact.sha256);
    if checked.is_ok() {
        write_record(path, artifact, record);
    }
    Ok(checked)
}

/// Remembers that `path` was verified just now. Without the record the next start is slower, not wrong.
pub(crate) fn write_record(path: &Path, artifact: &Artifact, record: &Path) {
    let written = Record::of(path, artifact).and_then(|now| fs::write(record, serde_json::to_vec(&now)?));
    if let Err(error) = written {
        tracing::warn!(record = %record.display(), %error, "verification not recorded");
    }
}

/// What was verified. Any difference means that the file may have changed since.
#[derive(PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Record {
    path: PathBuf,
    size: u64,
    modified_ns: u128,
    sha256: String,
}

impl Record {
    /// What stands in the record once `path` is known to be `artifact`.
    fn of(path: &Path, artifact: &Artifact) -> io::Result<Self> {
        let metadata = fs::metadata(path)?;
        let modified = metadata.modified()?.duration_since(UNIX_EPOCH);
        Ok(Self {
            path: path.into(),
            size: metadata.len(),
            modified_ns: modified.map_or(0, |since| since.as_nanos()),
            sha256: artifact.sha256.to_string(),
        })
    }

    fn read(path: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(path).ok()?).ok()
    }
}

#[cfg(test)]
mod tests;
