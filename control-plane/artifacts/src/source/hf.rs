//! Hugging Face through the `hf-hub` crate, which keeps what it has and goes on from there after an interruption.
//!
//! The crate sets no time limits, so it runs on a thread of its own whose signs of life are watched: a name server that does
//! not answer, a firewall that drops packets and a connection that stalls all end in an error within seconds.

use std::{
    fs,
    panic::resume_unwind,
    path::{Path, PathBuf},
    sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender},
    thread,
    time::Duration,
};

use hf_hub::{
    Cache, Repo, RepoType,
    api::sync::{ApiBuilder, ApiError},
};

use super::{SourceError, adopt};
use crate::{Artifact, HfSettings, Progress, error::is_disk_full, store::Place};

/// How often a broken download is taken up again before the source counts as failed.
const RETRIES_MAX: usize = 2;

/// What to fetch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) repo: &'a str,
    pub(crate) file: &'a str,
    pub(crate) revision: &'a str,
}

/// Downloads the file and puts it into its place.
pub(crate) fn fetch(
    wanted: Wanted<'_>,
    artifact: &Artifact,
    place: &Place,
    settings: &HfSettings,
    progress: &dyn Progress,
) -> Result<(), SourceError> {
    let folder = place.download.join("hf");
    fs::create_dir_all(&folder).map_err(|error| SourceError::storing(artifact, "create", &folder, error))?;
    let resumed = discard_whole_parts(&folder, artifact.size) > 0;
    match fetch_once(wanted, artifact, place, settings, progress) {
        // The server may have changed the file or not understood the range. From the start it may be right.
        Err(SourceError::Failed(reason)) if resumed && !has_parts(&folder) => {
            progress.note(&format!("resuming failed ({reason}); starting again"));
            fetch_once(wanted, artifact, place, settings, progress)
        }
        other => other,
    }
}

fn fetch_once(
    wanted: Wanted<'_>,
    artifact: &Artifact,
    place: &Place,
    settings: &HfSettings,
    progress: &dyn Progress,
) -> Result<(), SourceError> {
    let (sender, events) = mpsc::sync_channel(64);
    let download = download_on_thread(wanted, place.download.join("hf"), settings, sender);
    watch(&events, artifact, settings, progress)?;
    let downloaded = download
        .join()
        .map_err(|_| SourceError::failed("the download broke off"))?
        .map_err(|error| reason_of(error, artifact, place))?;
    adopt(artifact, &downloaded, &place.file)
}

/// Signs of life of the download.
#[derive(Debug)]
enum Event {
    Started,
    Read(u64),
}

type Download = thread::JoinHandle<Result<PathBuf, ApiError>>;

fn download_on_thread(
    wanted: Wanted<'_>,
    folder: PathBuf,
    settings: &HfSettings,
    events: SyncSender<Event>,
) -> Download {
    let repo = Repo::with_revision(wanted.repo.into(), RepoType::Model, wanted.revision.into());
    let file = wanted.file.to_owned();
    let builder = ApiBuilder::from_cache(Cache::new(folder))
        .with_endpoint(settings.endpoint.trim_end_matches('/').into())
        .with_token(settings.token.clone())
        .with_retries(RETRIES_MAX)
        .with_progress(false);
    thread::spawn(move || {
        let pointer = builder
            .build()?
            .repo(repo)
            .download_with_progress(&file, Reporter(events))?;
        // The crate answers with a link to the bytes.
        Ok(fs::canonicalize(pointer)?)
    })
}

/// Waits for the end of the download, or for a silence that is too long. The step begins with the first byte: a hub that
/// cannot be reached is told in one line, not as a download of nothing.
fn watch(
    events: &Receiver<Event>,
    artifact: &Artifact,
    settings: &HfSettings,
    progress: &dyn Progress,
) -> Result<(), SourceError> {
    match events.recv_timeout(settings.connect_timeout) {
        Ok(_) => progress.start(&format!("downloading {}", artifact.file_name), Some(artifact.size)),
        Err(RecvTimeoutError::Disconnected) => return Ok(()),
        Err(RecvTimeoutError::Timeout) => return Err(silent(settings, settings.connect_timeout)),
    }
    let mut bytes = 0;
    let ended = loop {
        match events.recv_timeout(settings.stall_timeout) {
            Ok(Event::Started) => bytes = 0,
            Ok(Event::Read(length)) => {
                bytes += length;
                progress.position(bytes);
            }
            Err(RecvTimeoutError::Disconnected) => break Ok(()),
            Err(RecvTimeoutError::Timeout) => break Err(silent(settings, settings.stall_timeout)),
        }
    };
    progress.finish();
    ended
}

fn silent(settings: &HfSettings, limit: Duration) -> SourceError {
    SourceError::Failed(format!("{} was silent for {limit:?}", settings.endpoint))
}

/// Carries the crate's reports to the watching thread.
struct Reporter(SyncSender<Event>);

impl Reporter {
    fn send(&self, event: Event) {
        if self.0.send(event).is_err() {
            // Nobody waits any more. The crate offers no other way to stop than to unwind; this one is silent.
            resume_unwind(Box::new("download abandoned"));
        }
    }
}

impl hf_hub::api::Progress for Reporter {
    fn init(&mut self, _size: usize, _file: &str) {
        self.send(Event::Started);
    }

    fn update(&mut self, length: usize) {
        self.send(Event::Read(length as u64));
    }

    fn finish(&mut self) {}
}

fn reason_of(error: ApiError, artifact: &Artifact, place: &Place) -> SourceError {
    match error {
        ApiError::IoError(error) if is_disk_full(&error) => {
            SourceError::storing(artifact, "write", &place.download, error)
        }
        ApiError::TooManyRetries(error) => reason_of(*error, artifact, place),
        error => SourceError::failed(error),
    }
}

/// Removes downloads that are as long as the file or longer, yet were not taken: asking for the bytes behind them only
/// brings an error. Returns how many can be resumed.
fn discard_whole_parts(folder: &Path, size: u64) -> usize {
    let mut resumable = 0;
    for part in parts(folder) {
        let is_whole = fs::metadata(&part).map_or(true, |metadata| metadata.len() >= size);
        if !is_whole {
            resumable += 1;
        } else if let Err(error) = fs::remove_file(&part) {
            tracing::warn!(part = %part.display(), %error, "useless download not removed");
        }
    }
    resumable
}

fn has_parts(folder: &Path) -> bool {
    parts(folder).next().is_some()
}

/// The unfinished downloads below the crate's folder: `<repository>/blobs/<etag>.part`.
fn parts(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let list = |folder: PathBuf| {
        fs::read_dir(folder)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
    };
    list(folder.into())
        .flat_map(move |repository| list(repository.join("blobs")))
        .filter(|path| path.extension().is_some_and(|extension| extension == "part"))
}

#[cfg(test)]
mod tests;
