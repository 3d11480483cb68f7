//! One process fetches a file, the others wait. The lock belongs to the open file, so the system releases it when its holder dies.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{self, Read, Seek, Write},
    path::Path,
    process,
};

use crate::Progress;

/// Held while it lives.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock, if need be after the process that has it.
    pub(crate) fn acquire(path: &Path, progress: &dyn Progress) -> io::Result<Self> {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                progress.note(&waiting_line(&mut file));
                file.lock()?;
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
        write_own_pid(&mut file)?;
        Ok(Self { _file: file })
    }
}

fn waiting_line(file: &mut File) -> String {
    let mut pid = String::new();
    match file.read_to_string(&mut pid) {
        Ok(length) if length > 0 => format!("process {} is fetching the same file; waiting for it", pid.trim()),
        _ => "another process is fetching the same file; waiting for it".into(),
    }
}

/// The number is for people and for `waiting_line`; the lock itself is the system's.
fn write_own_pid(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{}", process::id())
}

#[cfg(test)]
mod tests;
