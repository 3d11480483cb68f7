//! How a command fails: a message for people and an exit code for scripts.

use std::io;

use cluster_api::{Fault, FaultKind};
use cluster_artifacts::FetchError;
use cluster_topologies::Problems;

/// A command that did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The input is wrong; trying again changes nothing.
    #[error("error: {0}")]
    Input(String),

    /// A file is wrong. Its problems are printed like a compiler's.
    #[error("{}", .0.to_string().trim_end())]
    File(Box<Problems>),

    /// Several files are wrong; their problems, printed.
    #[error("{}", .0.trim_end())]
    Files(String),

    /// The input is fine, the world is not.
    #[error("error: {0}")]
    Failed(String),

    /// Nobody reads our output any more.
    #[error("standard output was closed")]
    ReaderGone,
}

impl Failure {
    pub(crate) fn input(message: impl Into<String>) -> Self {
        Failure::Input(message.into())
    }

    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Failure::Failed(message.into())
    }

    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Failure::Input(_) | Failure::File(_) | Failure::Files(_) => 2,
            Failure::Failed(_) | Failure::ReaderGone => 1,
        }
    }
}

/// Puts the remedy below the message, where there is one.
pub(crate) fn with_help(message: &str, help: &str) -> String {
    if help.is_empty() {
        return message.into();
    }
    format!("{message}\n  help: {help}")
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        let message = with_help(&fault.reason, &fault.remedy);
        match fault.kind {
            FaultKind::Invalid => Failure::Input(message),
            _ => Failure::Failed(message),
        }
    }
}

impl From<FetchError> for Failure {
    fn from(error: FetchError) -> Self {
        Failure::failed(error.to_string())
    }
}

impl From<Problems> for Failure {
    fn from(problems: Problems) -> Self {
        Failure::File(Box::new(problems))
    }
}

/// Errors of writing to standard output; others are wrapped where they happen, with what was tried.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::ReaderGone,
            _ => Failure::failed(format!("cannot write the output: {error}")),
        }
    }
}
