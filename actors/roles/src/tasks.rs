//! Tasks that end with their owner.

use std::future::Future;

use tokio::task::AbortHandle;

/// Running tasks. Dropping it ends them at their next await.
#[derive(Default)]
pub(crate) struct Tasks(Vec<AbortHandle>);

impl Tasks {
    pub(crate) fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.0.push(tokio::spawn(task).abort_handle());
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        for task in &self.0 {
            task.abort();
        }
    }
}
