use cluster_fabric::{Entropy, MemoryFabric, SystemClock};
use cluster_messages::{NodeId, Role};
use cluster_telemetry::Metrics;
use cluster_transfer::Exchange;

use super::*;
use crate::peers::Peers;

const POLICY: Policy = Policy {
    backoff_min: Duration::from_millis(100),
    backoff_max: Duration::from_secs(1),
    restarts_max: 3,
    window: Duration::from_secs(60),
};

const PATH: ActorPath = ActorPath::new(Role::Cache, 0);

async fn supervisor() -> Supervisor {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::starting_at(0));
    let exchange = Exchange::new(clock.clone());
    let fabric = MemoryFabric::new(clock, Entropy::from_seed(1)).node(NodeId("n".into()));
    let host = Host {
        peers: Peers::watch(&fabric).await.unwrap(),
        fabric,
        namespace: "test".into(),
        generation: 1,
        transfer: exchange.transfer(),
        exchange,
        metrics: Metrics::new(),
        board: Board::default(),
    };
    Supervisor::start(host, POLICY).await.unwrap()
}

/// An actor that does what it is told.
struct Patient {
    /// Starts that fail before one succeeds.
    bad_starts: Mutex<u32>,
    /// How long a start takes.
    start: Duration,
    lives: tokio::sync::watch::Sender<Option<ActorRef<&'static str>>>,
}

struct PatientActor(Life);

impl Actor for PatientActor {
    type Msg = &'static str;
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<&'static str>, (): ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }

    async fn handle(
        &self,
        myself: ActorRef<&'static str>,
        message: &'static str,
        (): &mut (),
    ) -> Result<(), ActorProcessingErr> {
        match message {
            "panic" => panic!("told to"),
            "lose" => {
                self.0.exit.leave(Exit::EngineLost("gone".into()));
                Err("gone".into())
            }
            _ => {
                myself.stop(None);
                Ok(())
            }
        }
    }
}

#[async_trait]
impl RoleSpec for Patient {
    fn path(&self) -> ActorPath {
        PATH
    }

    async fn spawn(&self, life: Life) -> Result<ActorCell, String> {
        tokio::time::sleep(self.start).await;
        {
            let mut bad = self.bad_starts.lock().unwrap();
            if *bad > 0 {
                *bad -= 1;
                return Err("not yet".into());
            }
        }
        let supervisor = life.supervisor.clone();
        let (actor, _) = Actor::spawn_linked(None, PatientActor(life), (), supervisor)
            .await
            .unwrap();
        self.lives.send_replace(Some(actor.clone()));
        Ok(actor.get_cell())
    }
}

fn patient(bad_starts: u32) -> Arc<Patient> {
    slow(bad_starts, Duration::ZERO)
}

fn slow(bad_starts: u32, start: Duration) -> Arc<Patient> {
    Arc::new(Patient {
        bad_starts: Mutex::new(bad_starts),
        start,
        lives: tokio::sync::watch::Sender::new(None),
    })
}

async fn ready_with(supervisor: &Supervisor, restarts: u32) -> crate::Instance {
    let all = supervisor.board().wait_for(|all| {
        all.get(&PATH)
            .is_some_and(|instance| instance.state == State::Ready && instance.restarts == restarts)
    });
    all.await[&PATH].clone()
}

fn tell(patient: &Patient, message: &'static str) {
    patient.lives.borrow().as_ref().unwrap().cast(message).unwrap();
}

#[tokio::test(start_paused = true)]
async fn each_kind_of_death_is_named_and_followed_by_a_new_life() {
    let supervisor = supervisor().await;
    let patient = patient(0);
    supervisor.take(patient.clone());
    let first = ready_with(&supervisor, 0).await;
    tell(&patient, "panic");
    let second = ready_with(&supervisor, 1).await;
    assert!(
        matches!(&second.last_exit, Some(Exit::Panicked(why)) if why.contains("told to")),
        "{second:?}"
    );
    assert!(second.epoch > first.epoch);
    tell(&patient, "lose");
    let third = ready_with(&supervisor, 2).await;
    assert_eq!(third.last_exit, Some(Exit::EngineLost("gone".into())));
    supervisor.kill(PATH);
    let fourth = ready_with(&supervisor, 3).await;
    assert_eq!(fourth.last_exit, Some(Exit::Killed));
    assert!(fourth.epoch > third.epoch);
}

#[tokio::test(start_paused = true)]
async fn too_many_deaths_are_handed_up() {
    let supervisor = supervisor().await;
    supervisor.take(patient(u32::MAX));
    let all = supervisor
        .board()
        .wait_for(|all| all[&PATH].state == State::Failed)
        .await;
    assert_eq!(all[&PATH].restarts, POLICY.restarts_max);
    assert_eq!(all[&PATH].last_exit, Some(Exit::StartFailed("not yet".into())));
}

#[tokio::test(start_paused = true)]
async fn a_start_that_fails_is_tried_again() {
    let supervisor = supervisor().await;
    supervisor.take(patient(2));
    let instance = ready_with(&supervisor, 2).await;
    assert_eq!(instance.last_exit, Some(Exit::StartFailed("not yet".into())));
}

#[tokio::test(start_paused = true)]
async fn stopping_stops_everything_and_restarts_nothing() {
    let supervisor = supervisor().await;
    let patient = patient(0);
    supervisor.take(patient.clone());
    ready_with(&supervisor, 0).await;
    supervisor.stop().await;
    let instance = supervisor.board().snapshot()[&PATH].clone();
    assert_eq!(
        (instance.state, instance.restarts, instance.last_exit),
        (State::Stopped, 0, Some(Exit::Stopped))
    );
}

#[tokio::test(start_paused = true)]
async fn stopping_waits_for_those_that_are_starting() {
    let supervisor = supervisor().await;
    let patient = slow(0, Duration::from_secs(5));
    supervisor.take(patient.clone());
    tokio::time::sleep(Duration::from_secs(1)).await;
    supervisor.stop().await;
    let instance = supervisor.board().snapshot()[&PATH].clone();
    assert_eq!(
        (instance.state, instance.last_exit),
        (State::Stopped, Some(Exit::Stopped))
    );
    let life = patient.lives.borrow().clone().expect("its start came to an end");
    assert_eq!(life.get_status(), ractor::ActorStatus::Stopped);
}

#[tokio::test(start_paused = true)]
async fn a_kill_while_starting_takes_effect_when_it_is_up() {
    let supervisor = supervisor().await;
    supervisor.take(slow(0, Duration::from_secs(5)));
    tokio::time::sleep(Duration::from_secs(1)).await;
    supervisor.kill(PATH);
    let second = ready_with(&supervisor, 1).await;
    assert_eq!(second.last_exit, Some(Exit::Killed));
}

#[tokio::test(start_paused = true)]
async fn what_a_dead_actor_had_to_do_is_not_shown_any_longer() {
    let supervisor = supervisor().await;
    supervisor.take(patient(0));
    ready_with(&supervisor, 0).await;
    supervisor.board().update(PATH, |instance| instance.load.running = 7);
    supervisor.kill(PATH);
    let second = ready_with(&supervisor, 1).await;
    assert_eq!(second.load.running, 0);
}
