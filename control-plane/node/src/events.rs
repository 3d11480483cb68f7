//! What happened on this node, for `cluster events`: changes of the board, in order, the oldest forgotten first.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, PoisonError},
};

use cluster_api::Event;
use cluster_fabric::Clock;
use cluster_messages::ActorPath;
use cluster_roles::{Board, Instance};

/// Events kept.
const EVENTS_MAX: usize = 1000;

/// The last events. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct EventLog(Arc<Mutex<Events>>);

#[derive(Default)]
struct Events {
    sequence: u64,
    kept: VecDeque<Event>,
}

impl EventLog {
    /// Events after `sequence`, oldest first.
    pub(crate) fn after(&self, sequence: u64) -> Vec<Event> {
        let events = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        events
            .kept
            .iter()
            .filter(|event| event.sequence > sequence)
            .cloned()
            .collect()
    }

    /// Adds an event.
    pub(crate) fn add(&self, at_unix_ms: u64, kind: String, subject: String, message: String) {
        let mut events = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        events.sequence += 1;
        let sequence = events.sequence;
        events.kept.push_back(Event {
            sequence,
            at_unix_ms,
            kind,
            subject,
            message,
        });
        if events.kept.len() > EVENTS_MAX {
            events.kept.pop_front();
        }
    }

    /// Turns the board's changes into events until it is gone.
    pub(crate) async fn follow(self, board: Board, clock: Arc<dyn Clock>) {
        let mut known = BTreeMap::new();
        loop {
            let now = board.wait_for(|instances| differs(&known, instances)).await;
            for (path, instance) in &now {
                if known.get(path).map(state_of) != Some(state_of(instance)) {
                    let kind = format!("instance.{}", instance.state.name().replace(' ', "_"));
                    self.add(clock.now(), kind, path.to_string(), describe(instance));
                }
            }
            known = now;
        }
    }
}

fn state_of(instance: &Instance) -> (cluster_roles::State, u64) {
    (instance.state, instance.epoch.0)
}

fn differs(known: &BTreeMap<ActorPath, Instance>, now: &BTreeMap<ActorPath, Instance>) -> bool {
    now.iter()
        .any(|(path, instance)| known.get(path).map(state_of) != Some(state_of(instance)))
}

fn describe(instance: &Instance) -> String {
    let life = format!("epoch {}, {} restarts", instance.epoch.0, instance.restarts);
    match &instance.last_exit {
        Some(exit) => format!("{life}, last exit: {exit}"),
        None => life,
    }
}
