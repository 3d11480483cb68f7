//! Starts the actors of one node, and starts them again when they die.
//!
//! One for one: a death touches only the dead. Each life has a new epoch from the discovery, so that whatever the old life
//! left behind is refused by its receivers. Too many deaths inside the policy's window are handed up: the instance is
//! marked `Failed` and stays down until it is started by hand or by a new plan.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use cluster_fabric::Clock;
use cluster_messages::{ActorPath, Epoch, InstanceRef};
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, SupervisionEvent};

use crate::{
    host::Host,
    restart::{Decision, History, Policy},
    status::{Board, Exit, State},
    worker::show_nothing,
};

#[cfg(test)]
mod tests;

/// How to start one actor, again and again.
#[async_trait]
pub trait RoleSpec: Send + Sync + 'static {
    /// Its stable name.
    fn path(&self) -> ActorPath;

    /// Starts one life of it, linked to `life.supervisor`. Returns when it serves.
    async fn spawn(&self, life: Life) -> Result<ActorCell, String>;
}

/// What one life of an actor is given.
#[derive(Clone)]
pub struct Life {
    /// The node's services.
    pub host: Host,
    /// Who it is in this life.
    pub instance: InstanceRef,
    /// Whom its death is reported to.
    pub supervisor: ActorCell,
    /// Where it says why it ends, before it ends.
    pub exit: ExitNote,
}

/// Carries the typed reason of a death past the actor library, which knows only text.
#[derive(Clone, Default)]
pub struct ExitNote(Arc<Mutex<Option<Exit>>>);

impl ExitNote {
    /// Says why this life is about to end. The first reason stays.
    pub fn leave(&self, exit: Exit) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get_or_insert(exit);
    }

    fn take(&self) -> Option<Exit> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// What the supervisor is told.
pub(crate) enum Message {
    /// Take charge of this actor and start it.
    Start(Arc<dyn RoleSpec>),
    /// A start came to its end.
    Started {
        path: ActorPath,
        epoch: Epoch,
        exit: ExitNote,
        outcome: Result<ActorCell, String>,
    },
    /// The back-off of this actor is over.
    Again(ActorPath),
    /// End this actor as if it had crashed (fault injection).
    Kill(ActorPath),
    /// Stop all actors for good, and answer when none is left.
    StopAll(tokio::sync::oneshot::Sender<()>),
}

/// Starts `actor` under `supervisor`; returns when its `pre_start` has succeeded.
pub(crate) async fn spawn_linked<A: Actor>(
    actor: A,
    arguments: A::Arguments,
    supervisor: ActorCell,
) -> Result<ActorCell, String> {
    let started = Actor::spawn_linked(None, actor, arguments, supervisor).await;
    started
        .map(|(actor, _)| actor.get_cell())
        .map_err(|error| error.to_string())
}

struct Child {
    spec: Arc<dyn RoleSpec>,
    history: History,
    presence: Presence,
}

/// Whether an actor is there.
enum Presence {
    Down,
    /// On its way; what it was told meanwhile is done when it is up.
    Starting {
        is_killed: bool,
    },
    Up(ActorCell, ExitNote),
}

impl Presence {
    fn is_down(&self) -> bool {
        matches!(self, Presence::Down)
    }

    fn is(&self, cell: &ActorCell) -> bool {
        matches!(self, Presence::Up(own, _) if own.get_id() == cell.get_id())
    }
}

pub(crate) struct SupervisorState {
    host: Host,
    policy: Policy,
    board: Board,
    children: BTreeMap<ActorPath, Child>,
    stopping: Option<tokio::sync::oneshot::Sender<()>>,
}

/// The actor behind [`Supervisor`].
pub(crate) struct SupervisorActor;

impl Actor for SupervisorActor {
    type Msg = Message;
    type State = SupervisorState;
    type Arguments = SupervisorState;

    async fn pre_start(&self, _: ActorRef<Message>, state: SupervisorState) -> Result<Self::State, ActorProcessingErr> {
        Ok(state)
    }

    async fn handle(
        &self,
        myself: ActorRef<Message>,
        message: Message,
        state: &mut SupervisorState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            Message::Start(spec) => {
                let path = spec.path();
                state.take(spec);
                state.begin(&myself, path);
            }
            Message::Again(path) => state.begin(&myself, path),
            Message::Started {
                path,
                epoch,
                exit,
                outcome,
            } => state.started(&myself, path, epoch, exit, outcome),
            Message::Kill(path) => state.kill(path),
            Message::StopAll(done) => state.stop_all(done),
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<Message>,
        event: SupervisionEvent,
        state: &mut SupervisorState,
    ) -> Result<(), ActorProcessingErr> {
        match event {
            SupervisionEvent::ActorTerminated(cell, _, _) => state.ended(&myself, &cell, Exit::Stopped),
            SupervisionEvent::ActorFailed(cell, error) => {
                state.ended(&myself, &cell, Exit::Panicked(error.to_string()))
            }
            _ => {}
        }
        Ok(())
    }
}

impl SupervisorState {
    /// Puts `spec` in charge of its path. An actor that is there already lives on; its next life is the new one's.
    fn take(&mut self, spec: Arc<dyn RoleSpec>) {
        let path = spec.path();
        let presence = self
            .children
            .remove(&path)
            .map_or(Presence::Down, |child| child.presence);
        let child = Child {
            spec,
            history: History::default(),
            presence,
        };
        self.children.insert(path, child);
    }

    fn begin(&mut self, myself: &ActorRef<Message>, path: ActorPath) {
        let Some(child) = self.children.get_mut(&path) else {
            return;
        };
        if self.stopping.is_some() || !child.presence.is_down() {
            return;
        }
        child.presence = Presence::Starting { is_killed: false };
        let (spec, host, supervisor) = (child.spec.clone(), self.host.clone(), myself.clone());
        self.board.update(path, |instance| instance.state = State::Starting);
        // Starting may take seconds (a model is loaded); the supervisor stays reachable meanwhile.
        tokio::spawn(async move {
            let exit = ExitNote::default();
            let (epoch, outcome) = match host.fabric.discovery.next_epoch(path).await {
                Err(error) => (Epoch(0), Err(error.to_string())),
                Ok(epoch) => {
                    let instance = InstanceRef { path, epoch };
                    let life = Life {
                        host,
                        instance,
                        supervisor: supervisor.get_cell(),
                        exit: exit.clone(),
                    };
                    (epoch, spec.spawn(life).await)
                }
            };
            // A supervisor that is gone took its children with it.
            let _gone = supervisor.cast(Message::Started {
                path,
                epoch,
                exit,
                outcome,
            });
        });
    }

    fn started(
        &mut self,
        myself: &ActorRef<Message>,
        path: ActorPath,
        epoch: Epoch,
        exit: ExitNote,
        outcome: Result<ActorCell, String>,
    ) {
        let stopping = self.stopping.is_some();
        let Some(child) = self.children.get_mut(&path) else {
            return;
        };
        let is_killed = matches!(child.presence, Presence::Starting { is_killed: true });
        let cell = match outcome {
            Ok(cell) => cell,
            Err(error) => {
                child.presence = Presence::Down;
                return self.died(myself, path, Exit::StartFailed(error));
            }
        };
        child.presence = Presence::Up(cell.clone(), exit.clone());
        self.board.update(path, |instance| {
            (instance.state, instance.epoch) = (State::Ready, epoch)
        });
        if cell.get_status() >= ractor::ActorStatus::Stopping {
            self.ended(myself, &cell, Exit::Panicked("died while starting".into()));
        } else if stopping {
            exit.leave(Exit::Stopped);
            cell.stop(None);
        } else if is_killed {
            self.kill(path);
        }
    }

    /// An actor's life is over. Events about cells that are nobody's present life (a start that failed) are not ours.
    fn ended(&mut self, myself: &ActorRef<Message>, cell: &ActorCell, seen: Exit) {
        let Some((path, child)) = self.children.iter_mut().find(|(_, child)| child.presence.is(cell)) else {
            return;
        };
        let path = *path;
        let noted = match std::mem::replace(&mut child.presence, Presence::Down) {
            Presence::Up(_, note) => note.take(),
            Presence::Down | Presence::Starting { .. } => None,
        };
        self.died(myself, path, noted.unwrap_or(seen));
    }

    fn died(&mut self, myself: &ActorRef<Message>, path: ActorPath, exit: Exit) {
        let Some(child) = self.children.get_mut(&path) else {
            return;
        };
        if self.stopping.is_some() {
            self.board.update(path, |instance| {
                (instance.state, instance.last_exit) = (State::Stopped, Some(exit))
            });
            show_nothing(&self.host, path);
            return self.answer_if_all_stopped();
        }
        let reason = exit.name();
        let decision = child.history.decide(&self.policy, self.host.fabric.clock.now());
        let restarts = child.history.total();
        let state = if decision == Decision::Escalate {
            State::Failed
        } else {
            State::BackingOff
        };
        tracing::warn!(actor = %path, %exit, restarts, next = state.name(), "actor ended");
        self.board.update(path, |instance| {
            (instance.state, instance.restarts, instance.last_exit) = (state, restarts, Some(exit));
        });
        show_nothing(&self.host, path);
        if let Decision::Restart(wait) = decision {
            self.host.metrics.actor_restarted(&path.to_string(), reason);
            again_after(self.host.fabric.clock.clone(), wait, myself.clone(), path);
        }
    }

    fn kill(&mut self, path: ActorPath) {
        match self.children.get_mut(&path).map(|child| &mut child.presence) {
            Some(Presence::Up(cell, exit)) => {
                exit.leave(Exit::Killed);
                cell.kill();
            }
            Some(Presence::Starting { is_killed }) => *is_killed = true,
            Some(Presence::Down) | None => {}
        }
    }

    fn stop_all(&mut self, done: tokio::sync::oneshot::Sender<()>) {
        self.stopping = Some(done);
        for (path, child) in &self.children {
            match &child.presence {
                Presence::Up(cell, exit) => {
                    exit.leave(Exit::Stopped);
                    cell.stop(None);
                }
                // It is stopped when it is up.
                Presence::Starting { .. } => {}
                Presence::Down => self.board.update(*path, |instance| instance.state = State::Stopped),
            }
        }
        self.answer_if_all_stopped();
    }

    fn answer_if_all_stopped(&mut self) {
        if self.children.values().all(|child| child.presence.is_down())
            && let Some(done) = self.stopping.take()
        {
            self.children.clear();
            let _nobody_waits = done.send(());
        }
    }
}

fn again_after(clock: Arc<dyn Clock>, wait: Duration, supervisor: ActorRef<Message>, path: ActorPath) {
    tokio::spawn(async move {
        clock.sleep(wait).await;
        let _gone = supervisor.cast(Message::Again(path));
    });
}

/// The handle to a node's supervisor.
#[derive(Clone)]
pub struct Supervisor {
    actor: ActorRef<Message>,
    board: Board,
}

impl Supervisor {
    /// Starts a supervisor that has nobody to supervise yet.
    pub async fn start(host: Host, policy: Policy) -> Result<Self, ractor::SpawnErr> {
        let board = host.board.clone();
        let state = SupervisorState {
            host,
            policy,
            board: board.clone(),
            children: BTreeMap::new(),
            stopping: None,
        };
        let (actor, _) = Actor::spawn(None, SupervisorActor, state).await?;
        Ok(Self { actor, board })
    }

    /// Takes charge of an actor. Its state appears on the board.
    pub fn take(&self, spec: Arc<dyn RoleSpec>) {
        self.board
            .update(spec.path(), |instance| instance.state = State::Starting);
        self.send(Message::Start(spec));
    }

    /// Ends an actor in the middle of whatever it does, as a crash would; the policy decides what follows. This is how
    /// tests and operators inject faults.
    pub fn kill(&self, path: ActorPath) {
        self.send(Message::Kill(path));
    }

    /// Stops everything and waits until it has stopped.
    pub async fn stop(&self) {
        let (done_in, done) = tokio::sync::oneshot::channel();
        self.send(Message::StopAll(done_in));
        // An error means that the supervisor is gone, and with it all it supervised.
        let _gone = done.await;
        self.actor.stop(None);
    }

    /// What everybody may see.
    pub fn board(&self) -> &Board {
        &self.board
    }

    fn send(&self, message: Message) {
        if self.actor.cast(message).is_err() {
            tracing::error!("the supervisor is gone");
        }
    }
}
