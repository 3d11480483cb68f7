use cluster_fabric::Stream;
use cluster_messages::{ErrorKind, InstanceRef, Role};

use super::*;
use crate::{
    Host, Supervisor,
    fixture::{header, host, living, start, supervisor},
    media_fixture::{POISON, Seen, WIDTH, digest, picture, rows_of, settings},
};

const PATH: ActorPath = ActorPath::new(Role::Encoder, 0);

struct Scene {
    host: Host,
    supervisor: Supervisor,
    seen: Seen,
    encoder: InstanceRef,
}

async fn scene(batch_ms: u64, waiting_max: u32) -> Scene {
    let (host, seen) = (host().await, Seen::default());
    let supervisor = supervisor(&host).await;
    let settings = EncoderSettings {
        waiting_max,
        ..settings(batch_ms, &seen)
    };
    let encoder = start(&host, &supervisor, EncoderSpec { path: PATH, settings }).await;
    Scene {
        host,
        supervisor,
        seen,
        encoder,
    }
}

impl Scene {
    async fn ask(&self, request: u128, number: u8, rows: u32) -> Result<Stream<EncodeFrame>, RequestError> {
        let open = Encode {
            header: header(request),
            digest: digest(number),
            file: picture(number, rows),
            tokens: rows,
        };
        let streams = &self.host.fabric.streams;
        streams
            .open::<EncodeProtocol>(self.encoder, header(request), open)
            .await
    }

    async fn encode(&self, request: u128, number: u8, rows: u32) -> Result<Encoded, RequestError> {
        answer(self.ask(request, number, rows).await?).await.1
    }

    async fn fetch(&self, ticket: FeatureTicket, number: u8) -> Result<Vec<Features>, RequestError> {
        let open = FetchFeatures {
            header: header(1),
            digest: digest(number),
        };
        let streams = &self.host.fabric.streams;
        let mut stream = streams.open::<FeaturesProtocol>(ticket.owner, header(1), open).await?;
        let mut parts = Vec::new();
        while let Some(part) = stream.next().await {
            parts.push(part?);
        }
        Ok(parts)
    }
}

/// How often the encoder said that it works, and what it said last.
async fn answer(mut stream: Stream<EncodeFrame>) -> (u32, Result<Encoded, RequestError>) {
    let mut working = 0;
    loop {
        match stream.next().await.expect("a stream ends with an answer") {
            Ok(EncodeFrame::Working) => working += 1,
            Ok(EncodeFrame::Done(encoded)) => return (working, Ok(encoded)),
            Err(error) => return (working, Err(error)),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_encoded_is_fetched_whole_in_frames_of_bounded_size() {
    let scene = scene(0, 4).await;
    let rows = (FRAME_BYTES / 16) as u32;
    let encoded = scene.encode(1, 7, rows).await.unwrap();
    assert_eq!((encoded.ticket.owner, encoded.was_cached), (scene.encoder, false));
    let parts = scene.fetch(encoded.ticket, 7).await.unwrap();
    assert_eq!(parts.len(), 2);
    assert!(
        parts
            .iter()
            .all(|part| part.width == WIDTH && part.values.len() <= FRAME_BYTES)
    );
    assert_eq!(parts.iter().map(|part| part.tokens).sum::<u32>(), rows);
    let got = parts.iter().flat_map(|part| part.values.iter().copied());
    let expected = rows_of(&picture(7, rows));
    assert!(got.eq(expected.iter().flat_map(|number| number.to_le_bytes())));
    assert!(scene.encode(2, 7, rows).await.unwrap().was_cached);
}

#[tokio::test(start_paused = true)]
async fn a_ticket_lasts_ten_seconds_or_as_long_as_its_request() {
    let scene = scene(0, 4).await;
    let now = scene.host.fabric.clock.now();
    let encoded = scene.encode(1, 7, 4).await.unwrap();
    assert_eq!(encoded.ticket.deadline.0 - now, 10_000);
}

#[tokio::test(start_paused = true)]
async fn embeddings_die_with_the_encoder() {
    let scene = scene(0, 4).await;
    let encoded = scene.encode(1, 7, 4).await.unwrap();
    scene.supervisor.kill(PATH);
    scene
        .host
        .peers
        .wait_for(|view| !view.contains_key(&scene.encoder))
        .await;
    let error = scene.fetch(encoded.ticket, 7).await.unwrap_err();
    assert!(error.kind.is_instance_fault(), "{error}");
    let next = living(&scene.host, PATH).await;
    assert_ne!(next, scene.encoder);
    assert_eq!(scene.fetch(encoded.ticket, 7).await.unwrap_err().kind, ErrorKind::Lost);
    let renewed = FeatureTicket {
        owner: next,
        ..encoded.ticket
    };
    let nothing = scene.fetch(renewed, 7).await.unwrap_err();
    assert_eq!(
        nothing.kind,
        ErrorKind::Overloaded,
        "the new life holds nothing of the old one, and is not to blame"
    );
}

#[tokio::test(start_paused = true)]
async fn who_finds_every_place_taken_is_told_when_to_come_back() {
    let scene = scene(1000, 2).await;
    let inside = [scene.ask(1, 1, 4).await.unwrap(), scene.ask(2, 2, 4).await.unwrap()];
    let refused = scene.ask(3, 3, 4).await.unwrap_err();
    assert_eq!(
        (refused.kind, refused.retry_after_ms),
        (ErrorKind::Overloaded, Some(1000))
    );
    let [one, other] = inside;
    drop(one);
    answer(other).await.1.unwrap();
    scene.encode(3, 3, 4).await.expect("there is room again");
}

#[tokio::test(start_paused = true)]
async fn who_waits_long_hears_that_the_encoder_gets_on() {
    let scene = scene(2000, 32).await;
    let asked = futures::future::join_all((0..16).map(|number| scene.ask(1, number, 4))).await;
    let answers = futures::future::join_all(asked.into_iter().map(|stream| answer(stream.unwrap()))).await;
    assert!(answers.iter().all(|(_, encoded)| encoded.is_ok()));
    let most = answers.iter().map(|(working, _)| *working).max().unwrap();
    assert!(most >= 3, "{most} signs of life in {:?}", scene.seen.batches());
}

#[tokio::test(start_paused = true)]
async fn an_encoder_whose_model_fails_starts_again() {
    let scene = scene(0, 4).await;
    let error = scene.encode(1, POISON, 4).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Lost);
    let (board, first) = (scene.supervisor.board(), scene.encoder.epoch);
    let board = board.wait_for(|all| all[&PATH].epoch > first).await;
    let last_exit = board[&PATH].last_exit.as_ref();
    assert_eq!(last_exit, Some(&Exit::EngineLost("a poisoned picture".into())));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_taken_back_is_not_encoded() {
    let scene = scene(1000, 8).await;
    let first = scene.ask(1, 100, 4).await.unwrap();
    while scene.seen.batches().is_empty() {
        tokio::task::yield_now().await;
    }
    let streams = futures::future::join_all((0..6).map(|number| scene.ask(1, number, 4))).await;
    let mut streams: Vec<_> = streams.into_iter().map(Result::unwrap).collect();
    let last = streams.pop().unwrap();
    drop(last);
    for stream in streams {
        answer(stream).await.1.unwrap();
    }
    answer(first).await.1.unwrap();
    assert_eq!(scene.seen.batches().iter().sum::<usize>(), 1 + 5);
}
