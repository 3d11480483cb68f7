//! A point that threads pass together, or not at all once one of them has broken the meeting up.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::crowd::{Crowd, lock};

pub(super) struct Meeting {
    members: usize,
    arrived: AtomicUsize,
    /// How often all have met.
    rounds: AtomicUsize,
    broken: AtomicBool,
    /// Why, by the first who said so.
    reason: Mutex<Option<String>>,
    crowd: Crowd,
}

impl Meeting {
    /// Members yield before they park, but do not spin: the one they wait for may need their core, and on a virtual machine
    /// pauses in a row cost tens of microseconds.
    pub(super) fn new(members: usize) -> Self {
        Self {
            members,
            arrived: AtomicUsize::new(0),
            rounds: AtomicUsize::new(0),
            broken: AtomicBool::new(false),
            reason: Mutex::new(None),
            crowd: Crowd::new(0),
        }
    }

    /// Waits for all; false if that will not happen. All who meet are told the same: a member that leaves after the last
    /// one arrived does not undo the meeting.
    pub(super) fn meet(&self) -> bool {
        let round = self.rounds.load(Ordering::SeqCst);
        if self.arrived.fetch_add(1, Ordering::SeqCst) + 1 == self.members {
            self.arrived.store(0, Ordering::SeqCst);
            self.rounds.store(round.wrapping_add(1), Ordering::SeqCst);
            self.crowd.wake();
            return true;
        }
        let met = || self.rounds.load(Ordering::SeqCst) != round;
        self.crowd.wait_until(|| met() || self.is_broken());
        met()
    }

    pub(super) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::SeqCst)
    }

    /// Releases everybody, now and later.
    pub(super) fn break_up(&self, reason: String) {
        lock(&self.reason).get_or_insert(reason);
        self.broken.store(true, Ordering::SeqCst);
        self.crowd.wake();
    }

    pub(super) fn reason(&self) -> String {
        lock(&self.reason).clone().unwrap_or_default()
    }
}
