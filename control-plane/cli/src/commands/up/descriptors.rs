//! How many files and connections this process may hold open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit as far as the system lets us: the usual 1024 are fewer than the clients that a cluster can serve.
/// Where it cannot be raised, connections beyond it wait in the listener's queue.
pub(super) fn allow_as_many_as_possible() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let highest = Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        };
        let _stays_as_it_was = setrlimit(Resource::Nofile, highest);
    }
}
