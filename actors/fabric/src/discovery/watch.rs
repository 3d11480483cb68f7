//! Following registrations.

use std::fmt;

use cluster_messages::{InstanceRef, Registration};
use futures::{
    StreamExt,
    stream::{BoxStream, Stream},
};

/// A change of who is there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// Exactly these are there: the start, or after changes were missed. Ordered by instance.
    Resync(Vec<Registration>),
    /// This one came or changed. A higher epoch replaces a lower one of the same path.
    Put(Registration),
    /// This life is over.
    Gone(InstanceRef),
}

/// The changes in order, beginning with a `Resync`. A reader that falls behind gets a `Resync` in place of what it missed.
pub struct Watch(BoxStream<'static, Change>);

impl Watch {
    /// A watch that delivers `changes`, the first of which is a `Resync`.
    pub fn new(changes: impl Stream<Item = Change> + Send + 'static) -> Self {
        Self(changes.boxed())
    }

    /// The next change. `None` when the store is gone for good.
    pub async fn next(&mut self) -> Option<Change> {
        self.0.next().await
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watch")
    }
}
