//! The clusters that run on this machine, as files in the state folder.
//!
//! ```text
//! <state>/<name>.lock   held by the process that runs the cluster; the system releases it when the process dies
//!         <name>.json   what others need to reach it; without a held lock it is stale
//!         <name>.log    the output of a cluster started with --detach
//! ```

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io,
    path::{Path, PathBuf},
    process, thread,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::failure::Failure;

/// What a running cluster tells about itself.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Run {
    /// The topology's name.
    pub(crate) name: String,
    /// Its process.
    pub(crate) pid: u32,
    /// Where its control-plane API listens.
    pub(crate) api: String,
    /// Where its OpenAI-compatible API listens.
    pub(crate) endpoint: String,
    /// Seconds since 1970-01-01 UTC.
    pub(crate) started_unix_s: u64,
}

/// The state folder.
#[derive(Clone, Debug)]
pub(crate) struct Runs {
    folder: PathBuf,
}

/// The right to run the cluster of a name. Dropping it gives the name free.
#[derive(Debug)]
pub(crate) struct Claim {
    _lock: File,
    record: PathBuf,
}

impl Runs {
    pub(crate) fn new(folder: &Path) -> Self {
        Self { folder: folder.into() }
    }

    fn path(&self, name: &str, extension: &str) -> PathBuf {
        self.folder.join(format!("{name}.{extension}"))
    }

    /// Where a detached cluster writes.
    pub(crate) fn log(&self, name: &str) -> PathBuf {
        self.path(name, "log")
    }

    /// Takes the name for this process.
    pub(crate) fn claim(&self, name: &str) -> Result<Claim, Failure> {
        let cannot = |error: io::Error| Failure::failed(format!("cannot write to {}: {error}", self.folder.display()));
        fs::create_dir_all(&self.folder).map_err(cannot)?;
        let lock = open_lock(&self.path(name, "lock")).map_err(cannot)?;
        if !try_lock_patiently(&lock).map_err(cannot)? {
            return Err(self.taken(name));
        }
        Ok(Claim {
            _lock: lock,
            record: self.path(name, "json"),
        })
    }

    /// Fails if a cluster of that name runs.
    pub(crate) fn refuse_second(&self, name: &str) -> Result<(), Failure> {
        self.find(name).map_or(Ok(()), |_| Err(self.taken(name)))
    }

    fn taken(&self, name: &str) -> Failure {
        let by = self
            .read(name)
            .map_or_else(String::new, |run| format!(" in process {}", run.pid));
        Failure::failed(format!(
            "a cluster '{name}' already runs{by}\n  help: stop it with 'cluster down {name}', or give this one another name"
        ))
    }

    /// The cluster of that name, if it runs.
    pub(crate) fn find(&self, name: &str) -> Option<Run> {
        self.list().into_iter().find(|run| run.name == name)
    }

    /// All that run, by name. What the dead left is removed.
    pub(crate) fn list(&self) -> Vec<Run> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let paths = entries.map(|entry| entry.path());
        let mut names: Vec<String> = paths
            .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
            .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
            .collect();
        names.sort();
        names.retain(|name| self.is_held_or_removed(name));
        names.iter().filter_map(|name| self.read(name)).collect()
    }

    /// Whether the lock of `name` is held; if not, its record is removed while we hold it.
    fn is_held_or_removed(&self, name: &str) -> bool {
        let Ok(lock) = open_lock(&self.path(name, "lock")) else {
            return false;
        };
        if matches!(lock.try_lock(), Err(TryLockError::WouldBlock)) {
            return true;
        }
        // A stale record that cannot be removed is ignored all the same.
        let _ = fs::remove_file(self.path(name, "json"));
        false
    }

    fn read(&self, name: &str) -> Option<Run> {
        serde_json::from_slice(&fs::read(self.path(name, "json")).ok()?).ok()
    }
}

impl Claim {
    /// Tells others how to reach the cluster. Readers see the old or the new record, never a half.
    pub(crate) fn publish(&self, run: &Run) -> io::Result<()> {
        let fresh = self.record.with_extension(format!("{}.tmp", process::id()));
        fs::write(&fresh, serde_json::to_vec(run)?)?;
        fs::rename(fresh, &self.record)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // If it stays, it is stale as soon as the lock is gone.
        let _ = fs::remove_file(&self.record);
    }
}

fn open_lock(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
}

/// Readers hold a lock for the blink of an eye while they look whether it is stale; only who holds it longer runs.
fn try_lock_patiently(lock: &File) -> io::Result<bool> {
    const LOOKS: u32 = 5;
    for _ in 0..LOOKS {
        match lock.try_lock() {
            Ok(()) => return Ok(true),
            Err(TryLockError::WouldBlock) => thread::sleep(Duration::from_millis(20)),
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests;
