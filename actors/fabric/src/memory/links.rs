//! The links between nodes, and what goes wrong on them.

use std::{
    collections::HashMap,
    ops::RangeInclusive,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use cluster_messages::NodeId;
use tokio_util::sync::CancellationToken;

use crate::Entropy;

/// What happens to a message between two different nodes. Nothing, by default.
#[derive(Clone, PartialEq, Debug)]
pub struct MessageFaults {
    /// The probability that it is lost.
    pub lose: f64,
    /// The probability that it arrives twice.
    pub repeat: f64,
    /// How long it travels; messages overtake each other.
    pub delay: RangeInclusive<Duration>,
}

impl Default for MessageFaults {
    fn default() -> Self {
        Self {
            lose: 0.0,
            repeat: 0.0,
            delay: Duration::ZERO..=Duration::ZERO,
        }
    }
}

/// A pair of nodes in a fixed order: a link has no direction.
type Pair = (NodeId, NodeId);

pub(super) struct Links {
    entropy: Entropy,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Raised while the link is cut.
    links: HashMap<Pair, CancellationToken>,
    faults: MessageFaults,
}

impl Links {
    pub(super) fn new(entropy: Entropy) -> Self {
        Self {
            entropy,
            state: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The token that is raised when the link breaks; already raised while it is cut.
    pub(super) fn link(&self, one: &NodeId, other: &NodeId) -> CancellationToken {
        self.lock().links.entry(pair(one, other)).or_default().clone()
    }

    pub(super) fn cut(&self, one: &NodeId, other: &NodeId) {
        self.link(one, other).cancel();
    }

    pub(super) fn heal(&self, one: &NodeId, other: &NodeId) {
        self.lock().links.remove(&pair(one, other));
    }

    pub(super) fn set_message_faults(&self, faults: MessageFaults) {
        self.lock().faults = faults;
    }

    /// After which delays copies of a message arrive; none: it is lost.
    pub(super) fn arrivals(&self, from: &NodeId, to: &NodeId) -> Vec<Duration> {
        if from == to {
            return vec![Duration::ZERO];
        }
        let faults = self.lock().faults.clone();
        if self.entropy.chance(faults.lose) {
            return Vec::new();
        }
        let copies = if self.entropy.chance(faults.repeat) { 2 } else { 1 };
        (0..copies).map(|_| self.delay(&faults.delay)).collect()
    }

    fn delay(&self, range: &RangeInclusive<Duration>) -> Duration {
        let width = range.end().saturating_sub(*range.start()).as_micros();
        let width = u64::try_from(width).unwrap_or(u64::MAX - 1);
        *range.start() + Duration::from_micros(self.entropy.below(width + 1))
    }

    pub(super) fn is_cut(&self, one: &NodeId, other: &NodeId) -> bool {
        let state = self.lock();
        let link = state.links.get(&pair(one, other));
        link.is_some_and(CancellationToken::is_cancelled)
    }
}

fn pair(one: &NodeId, other: &NodeId) -> Pair {
    let (first, second) = if one <= other { (one, other) } else { (other, one) };
    (first.clone(), second.clone())
}
