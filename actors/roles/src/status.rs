//! What anyone may see of an instance: its state, its life, how it last ended. Written by the supervisor and the role
//! itself, read by the control-plane API and by tests.

use std::{collections::BTreeMap, sync::Arc};

use cluster_messages::{ActorPath, Epoch, SamplePoint};
use tokio::sync::watch;

/// How a life of an actor ended.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Exit {
    /// It was told to.
    #[error("stopped")]
    Stopped,
    /// It panicked.
    #[error("panicked: {0}")]
    Panicked(String),
    /// Its engine's thread ended.
    #[error("engine lost: {0}")]
    EngineLost(String),
    /// It could not start.
    #[error("start failed: {0}")]
    StartFailed(String),
    /// It was killed from outside.
    #[error("killed")]
    Killed,
}

impl Exit {
    /// The word in metrics.
    pub const fn name(&self) -> &'static str {
        match self {
            Exit::Stopped => "stopped",
            Exit::Panicked(_) => "panicked",
            Exit::EngineLost(_) => "engine_lost",
            Exit::StartFailed(_) => "start_failed",
            Exit::Killed => "killed",
        }
    }
}

/// Where an instance is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Its actor is being started.
    Starting,
    /// It serves.
    Ready,
    /// It died and will be started again.
    BackingOff,
    /// It was told to stop, and did.
    Stopped,
    /// It died too often.
    Failed,
}

impl State {
    /// The word in tables and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            State::Starting => "starting",
            State::Ready => "ready",
            State::BackingOff => "backing off",
            State::Stopped => "stopped",
            State::Failed => "failed",
        }
    }
}

/// One instance as seen from outside.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Instance {
    /// Where it is in its life.
    pub state: State,
    /// Which life.
    pub epoch: Epoch,
    /// How often it was started again.
    pub restarts: u32,
    /// How the life before ended.
    pub last_exit: Option<Exit>,
    /// The last load it reported; all zero for roles without an engine.
    pub load: SamplePoint,
}

/// All instances of this process. Cheap to clone; all clones see the same.
#[derive(Clone, Debug)]
pub struct Board {
    instances: Arc<watch::Sender<BTreeMap<ActorPath, Instance>>>,
}

impl Default for Board {
    fn default() -> Self {
        Self {
            instances: Arc::new(watch::Sender::new(BTreeMap::new())),
        }
    }
}

impl Board {
    /// All instances now.
    pub fn snapshot(&self) -> BTreeMap<ActorPath, Instance> {
        self.instances.borrow().clone()
    }

    /// Waits until `condition` holds, and returns what it held for.
    pub async fn wait_for(
        &self,
        condition: impl FnMut(&BTreeMap<ActorPath, Instance>) -> bool,
    ) -> BTreeMap<ActorPath, Instance> {
        let mut watched = self.instances.subscribe();
        watched
            .wait_for(condition)
            .await
            .expect("self holds the sender, so the channel is open")
            .clone()
    }

    /// Changes one instance, which is made if it is new.
    pub(crate) fn update(&self, path: ActorPath, change: impl FnOnce(&mut Instance)) {
        self.instances.send_modify(|instances| {
            let new = || Instance {
                state: State::Starting,
                epoch: Epoch(0),
                restarts: 0,
                last_exit: None,
                load: SamplePoint::default(),
            };
            change(instances.entry(path).or_insert_with(new));
        });
    }
}
