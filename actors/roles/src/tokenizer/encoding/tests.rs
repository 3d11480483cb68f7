use std::sync::Arc;

use cluster_messages::{ActorPath, Epoch, Header, MediumKind, Role};
use cluster_routing::Policy;
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef};

use super::*;
use crate::{
    EncoderSettings, EncoderSpec, Host, Life, MediaPolicy, RouterSpec, Supervisor,
    fixture::{header, host, start, supervisor},
    media_fixture::{POISON, Seen, digest, picture, settings},
    supervisor::ExitNote,
    tokenizer::{Shared, prepare::Prepared, tests},
};

const ROWS: u32 = 4;

struct Scene {
    host: Host,
    supervisor: Supervisor,
    shared: Shared,
}

struct Nobody;

impl Actor for Nobody {
    type Msg = ();
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<()>, (): ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }
}

async fn nobody() -> ActorCell {
    Actor::spawn(None, Nobody, ()).await.unwrap().0.get_cell()
}

/// A router, and a tokenizer that encodes media apart.
async fn scene(fallback_local: bool) -> Scene {
    let host = host().await;
    let supervisor = supervisor(&host).await;
    let router = RouterSpec {
        path: ActorPath::new(Role::Router, 0),
        policy: Policy::kv_aware(),
    };
    start(&host, &supervisor, router).await;
    let instance = InstanceRef {
        path: ActorPath::new(Role::Tokenizer, 0),
        epoch: Epoch(1),
    };
    let shared = Shared {
        host: host.clone(),
        life: Life {
            host: host.clone(),
            instance,
            supervisor: nobody().await,
            exit: ExitNote::default(),
        },
        model: Arc::new(tests::model()),
        media: MediaPolicy {
            apart: true,
            fallback_local,
            ..MediaPolicy::default()
        },
    };
    Scene {
        host,
        supervisor,
        shared,
    }
}

impl Scene {
    /// A batch of encoder `ordinal` takes `batch_ms`.
    async fn encoder(&self, ordinal: u32, batch_ms: u64, change: impl FnOnce(&mut EncoderSettings)) -> Encoder {
        let seen = Seen::default();
        let mut settings = settings(batch_ms, &seen);
        change(&mut settings);
        let path = ActorPath::new(Role::Encoder, ordinal);
        let instance = start(&self.host, &self.supervisor, EncoderSpec { path, settings }).await;
        Encoder { instance, seen }
    }

    fn prompt(&self, numbers: &[u8]) -> Prepared {
        let media = numbers.iter().enumerate().map(|(index, number)| Medium {
            kind: MediumKind::Image,
            digest: digest(*number),
            first: index as u32 * ROWS,
            tokens: ROWS,
            source: MediumSource::File(picture(*number, ROWS)),
        });
        let mut prepared = self.shared.model.prepare(tests::text(3), 0).unwrap();
        prepared.media = media.collect();
        prepared
    }

    /// Has pictures encoded, from encoders that the router chooses.
    async fn encode(&self, numbers: &[u8]) -> Result<Vec<MediumSource>, RequestError> {
        self.encode_at(numbers, None, header(1)).await
    }

    async fn encode_at(
        &self,
        numbers: &[u8],
        chosen: Option<InstanceRef>,
        header: Header,
    ) -> Result<Vec<MediumSource>, RequestError> {
        let prepared = self.prompt(numbers);
        let errand = Errand {
            shared: &self.shared,
            prepared: &prepared,
            header: &header,
            index: 0,
        };
        let route = Route {
            header: header.clone(),
            blocks: Vec::new(),
            prompt_tokens: 1,
            media: prepared.media.iter().map(|medium| medium.digest).collect(),
            exclude: Vec::new(),
        };
        let Some(chosen) = chosen else {
            let (encoders, _routed) = self.host.peers.route_encoders(route).await?;
            return encode_all(errand, &encoders, &[], false).await;
        };
        encode_all(errand, &vec![chosen; numbers.len()], &[], false).await
    }
}

struct Encoder {
    instance: InstanceRef,
    seen: Seen,
}

fn owner(source: &MediumSource) -> Option<InstanceRef> {
    match source {
        MediumSource::Encoder(ticket) => Some(ticket.owner),
        MediumSource::File(_) => None,
    }
}

#[tokio::test(start_paused = true)]
async fn the_pictures_of_a_request_are_encoded_side_by_side_where_the_router_says() {
    let scene = scene(false).await;
    let (one, other) = (scene.encoder(0, 100, |_| ()).await, scene.encoder(1, 100, |_| ()).await);
    let before = scene.host.fabric.clock.now();
    let sources = scene.encode(&[1, 2, 3, 4, 1]).await.unwrap();
    let took_ms = scene.host.fabric.clock.now() - before;
    assert!(took_ms < 300, "{took_ms} ms for pictures that take 100 ms each");
    let owners: Vec<_> = sources.iter().map(|source| owner(source).unwrap()).collect();
    assert_eq!(owners[0], owners[4], "equal pictures go to one encoder");
    for encoder in [&one, &other] {
        let own = owners[..4].iter().filter(|owner| **owner == encoder.instance).count();
        assert!(own > 0);
        assert_eq!(encoder.seen.decoded() as usize, own, "nothing is made twice");
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_encoder_is_passed_over() {
    let scene = scene(false).await;
    let full = scene.encoder(0, 1000, |settings| settings.waiting_max = 1).await;
    let idle = scene.encoder(1, 0, |_| ()).await;
    let (first, second) = tokio::join!(
        scene.encode_at(&[1], Some(full.instance), header(1)),
        scene.encode_at(&[2], Some(full.instance), header(2)),
    );
    assert_eq!(owner(&first.unwrap()[0]), Some(full.instance));
    assert_eq!(owner(&second.unwrap()[0]), Some(idle.instance));
}

#[tokio::test(start_paused = true)]
async fn when_an_encoder_dies_another_one_encodes() {
    let scene = scene(false).await;
    let dying = scene.encoder(0, 1000, |_| ()).await;
    let other = scene.encoder(1, 0, |_| ()).await;
    let dies = async {
        while dying.seen.batches().is_empty() {
            tokio::task::yield_now().await;
        }
        scene.supervisor.kill(dying.instance.path);
    };
    let (sources, ()) = tokio::join!(scene.encode_at(&[1], Some(dying.instance), header(1)), dies);
    let owner = owner(&sources.unwrap()[0]).unwrap();
    assert!(owner == other.instance || owner.epoch > dying.instance.epoch, "{owner}");
}

#[tokio::test(start_paused = true)]
async fn the_only_encoder_is_waited_for_when_it_dies() {
    let scene = scene(false).await;
    let only = scene.encoder(0, 1000, |_| ()).await;
    let dies = async {
        while only.seen.batches().is_empty() {
            tokio::task::yield_now().await;
        }
        scene.supervisor.kill(only.instance.path);
    };
    let (sources, ()) = tokio::join!(scene.encode(&[1]), dies);
    let owner = owner(&sources.unwrap()[0]).unwrap();
    assert!(owner.epoch > only.instance.epoch, "{owner}");
}

#[tokio::test(start_paused = true)]
async fn a_stalled_encoder_is_left_after_its_time() {
    let scene = scene(true).await;
    let stalled = scene.encoder(0, 3_600_000, |_| ()).await;
    let before = scene.host.fabric.clock.now();
    let sources = scene.encode(&[1]).await.unwrap();
    assert_eq!(owner(&sources[0]), None, "whoever computes the prompt encodes it");
    let took_ms = scene.host.fabric.clock.now() - before;
    let stall_ms = scene.shared.media.stall.as_millis() as u64;
    // It decoded the file, and said so a second later.
    assert!((stall_ms..stall_ms + 2000).contains(&took_ms), "{took_ms} ms");
    assert_eq!(stalled.seen.batches(), [1]);
}

#[tokio::test(start_paused = true)]
async fn without_an_encoder_the_topology_decides() {
    let allowed = scene(true).await;
    let sources = allowed.encode(&[1, 2]).await.unwrap();
    assert!(sources.iter().all(|source| owner(source).is_none()));
    let forbidden = scene(false).await;
    let before = forbidden.host.fabric.clock.now();
    let error = forbidden.encode(&[1, 2]).await.unwrap_err();
    assert_eq!((error.kind, error.retry_after_ms), (ErrorKind::Unavailable, Some(1000)));
    assert_eq!(
        forbidden.host.fabric.clock.now(),
        before,
        "nobody is waited for who was never there"
    );
}

#[tokio::test(start_paused = true)]
async fn a_picture_that_kills_encoders_is_given_up() {
    let scene = scene(true).await;
    for ordinal in 0..5 {
        scene.encoder(ordinal, 0, |_| ()).await;
    }
    let error = scene.encode(&[POISON]).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable);
    let board = scene.supervisor.board().snapshot();
    let deaths = board.values().filter(|instance| instance.last_exit.is_some()).count();
    assert!(deaths <= LIVES_MAX as usize, "{deaths} encoders died");
}

/// Two hundred pictures at once against one encoder; a batch of four takes `batch_ms`.
async fn crowd(batch_ms: u64) -> (Vec<Result<Vec<MediumSource>, RequestError>>, Encoder) {
    let scene = scene(false).await;
    let slow = scene.encoder(0, batch_ms, |_| ()).await;
    let numbers: Vec<[u8; 1]> = (0..200).map(|number| [number]).collect();
    let all = numbers.iter().map(|number| scene.encode(number));
    (futures::future::join_all(all).await, slow)
}

#[tokio::test(start_paused = true)]
async fn of_two_hundred_pictures_at_one_slow_encoder_none_is_lost() {
    let (outcomes, slow) = crowd(100).await;
    assert!(
        outcomes
            .iter()
            .all(|sources| sources.as_ref().is_ok_and(|all| owner(&all[0]) == Some(slow.instance)))
    );
    assert_eq!(slow.seen.decoded(), 200);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_wait_any_longer_ends_in_one_clean_error() {
    let (outcomes, slow) = crowd(1000).await;
    let errors: Vec<_> = outcomes.iter().filter_map(|sources| sources.as_ref().err()).collect();
    assert!(!errors.is_empty() && errors.len() < 200 - 64, "{} of 200", errors.len());
    for error in &errors {
        assert_eq!(
            (error.kind, error.retry_after_ms),
            (ErrorKind::Overloaded, Some(1000)),
            "{error}"
        );
    }
    assert_eq!(slow.seen.decoded() as usize, 200 - errors.len());
}
