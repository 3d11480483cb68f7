//! When a dead actor is started again: back-off that grows, and an end to it. Pure; the supervisor brings the clock.

use std::{collections::VecDeque, time::Duration};

#[cfg(test)]
mod tests;

/// How often and how fast an actor may be restarted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Policy {
    /// Wait before the first restart; doubles with each further one inside the window.
    pub backoff_min: Duration,
    /// The longest wait.
    pub backoff_max: Duration,
    /// More restarts than this inside the window are not made: the failure is handed up.
    pub restarts_max: u32,
    /// How long a restart is remembered.
    pub window: Duration,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            backoff_min: Duration::from_millis(50),
            backoff_max: Duration::from_secs(5),
            restarts_max: 10,
            window: Duration::from_secs(60),
        }
    }
}

/// What to do about a death.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Decision {
    /// Start again after this wait.
    Restart(Duration),
    /// Give up; whoever supervises the supervisor decides.
    Escalate,
}

/// The restarts of one actor that are still remembered, in milliseconds of the cluster clock.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct History {
    restarts_ms: VecDeque<u64>,
    total: u32,
}

impl History {
    /// Decides about a death at `now_ms` and, if the answer is a restart, remembers it.
    pub(crate) fn decide(&mut self, policy: &Policy, now_ms: u64) -> Decision {
        let window_ms = policy.window.as_millis() as u64;
        while self
            .restarts_ms
            .front()
            .is_some_and(|then| now_ms.saturating_sub(*then) >= window_ms)
        {
            self.restarts_ms.pop_front();
        }
        let recent = self.restarts_ms.len() as u32;
        if recent >= policy.restarts_max {
            return Decision::Escalate;
        }
        self.restarts_ms.push_back(now_ms);
        self.total += 1;
        let factor = 1u32.checked_shl(recent).unwrap_or(u32::MAX);
        Decision::Restart(policy.backoff_min.saturating_mul(factor).min(policy.backoff_max))
    }

    /// All restarts ever made.
    pub(crate) fn total(&self) -> u32 {
        self.total
    }
}
