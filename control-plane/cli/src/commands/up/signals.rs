//! The signals that end a cluster.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::Failure;

/// Ctrl-C and SIGTERM, which from now on no longer end the process by themselves.
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    pub(super) fn listen() -> Result<Self, Failure> {
        let cannot = |error| Failure::failed(format!("cannot listen for signals: {error}"));
        Ok(Self {
            interrupt: signal(SignalKind::interrupt()).map_err(cannot)?,
            terminate: signal(SignalKind::terminate()).map_err(cannot)?,
        })
    }

    /// The next one of either kind.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
