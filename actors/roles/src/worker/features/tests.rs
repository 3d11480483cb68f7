use cluster_messages::{
    ActorPath, Encode, Epoch, Generate, GenerateFrame, Generation, MediumKind, Role, Sampling, TraceContext,
};

use super::*;
use crate::{
    Decode, EncodeFrame, EncodeProtocol, EncoderSettings, EncoderSpec, GenerateProtocol, Host, PrefillSpec, Supervisor,
    WorkerSpec,
    fixture::{header, host, start, supervisor},
    media_fixture::{Seen, WIDTH, digest, picture, settings, worker},
};

const ROWS: u32 = 6;

struct Scene {
    host: Host,
    supervisor: Supervisor,
    decode: InstanceRef,
}

impl Scene {
    /// A decode instance that computes prompts itself.
    async fn aggregated(encoder: Option<EncoderSettings>) -> Self {
        let host = host().await;
        let supervisor = supervisor(&host).await;
        let path = ActorPath::new(Role::Decode, 0);
        let spec = WorkerSpec::<Decode>::new(path, worker(encoder, vec![Role::Prefill]));
        let decode = start(&host, &supervisor, spec).await;
        Self {
            host,
            supervisor,
            decode,
        }
    }

    async fn encoder(&self) -> InstanceRef {
        let path = ActorPath::new(Role::Encoder, 0);
        let settings = settings(0, &Seen::default());
        start(&self.host, &self.supervisor, EncoderSpec { path, settings }).await
    }

    async fn prefill(&self) -> InstanceRef {
        let path = ActorPath::new(Role::Prefill, 0);
        start(
            &self.host,
            &self.supervisor,
            PrefillSpec::new(path, worker(None, Vec::new())),
        )
        .await
    }

    async fn encode(&self, encoder: InstanceRef, number: u8) -> MediumSource {
        let open = Encode {
            header: header(1),
            digest: digest(number),
            file: picture(number, ROWS),
            tokens: ROWS,
        };
        let opening = self
            .host
            .fabric
            .streams
            .open::<EncodeProtocol>(encoder, header(1), open);
        let frame = opening.await.unwrap().next().await.unwrap().unwrap();
        let EncodeFrame::Done(encoded) = frame else {
            panic!("{frame:?}");
        };
        MediumSource::Encoder(encoded.ticket)
    }

    /// The tokens of an answer to picture `number`, which comes from `source`.
    async fn answer(
        &self,
        number: u8,
        source: MediumSource,
        prefill: Option<InstanceRef>,
    ) -> Result<Vec<u32>, RequestError> {
        let generate = Generate {
            header: header(1),
            generation: generation(number, source),
            prefill,
            attempt: 0,
            moved_from: TraceContext::default(),
        };
        let streams = &self.host.fabric.streams;
        let mut stream = streams
            .open::<GenerateProtocol>(self.decode, header(1), generate)
            .await?;
        let mut tokens = Vec::new();
        while let Some(frame) = stream.next().await {
            if let GenerateFrame::Tokens(more) = frame? {
                tokens.extend(more.iter().map(|token| token.id));
            }
        }
        Ok(tokens)
    }
}

/// Some text, a picture over several blocks, some text.
fn generation(number: u8, source: MediumSource) -> Generation {
    let tokens = [vec![1, 2, 3], vec![0; ROWS as usize], vec![4, 5]].concat();
    Generation {
        prompt_len: tokens.len() as u32,
        tokens,
        media: vec![Medium {
            kind: MediumKind::Image,
            digest: digest(number),
            first: 3,
            tokens: ROWS,
            source,
        }],
        sampling: Sampling {
            temperature: 0.0,
            ..Sampling::default()
        },
        max_tokens: 6,
        min_tokens: 0,
        stop_tokens: Vec::new(),
        logprobs: None,
        prompt_logprobs: None,
        cache_salt: String::new(),
        priority: 0,
    }
}

fn file(number: u8) -> MediumSource {
    MediumSource::File(picture(number, ROWS))
}

#[tokio::test]
async fn an_answer_does_not_depend_on_who_encodes_nor_on_who_computes_the_prompt() {
    let local = Scene::aggregated(Some(settings(0, &Seen::default()))).await;
    let expected = local.answer(7, file(7), None).await.unwrap();
    assert_eq!(expected.len(), 6);
    assert_ne!(
        local.answer(8, file(8), None).await.unwrap(),
        expected,
        "the picture matters"
    );

    let apart = Scene::aggregated(None).await;
    let ticket = apart.encode(apart.encoder().await, 7).await;
    assert_eq!(apart.answer(7, ticket, None).await.unwrap(), expected);

    let split = Scene::aggregated(None).await;
    let (encoder, prefill) = (split.encoder().await, split.prefill().await);
    let ticket = split.encode(encoder, 7).await;
    assert_eq!(split.answer(7, ticket, Some(prefill)).await.unwrap(), expected);
}

#[tokio::test]
async fn an_encoder_that_died_before_the_fetch_is_named_as_the_cause() {
    let scene = Scene::aggregated(None).await;
    let (encoder, prefill) = (scene.encoder().await, scene.prefill().await);
    let ticket = scene.encode(encoder, 7).await;
    scene.supervisor.kill(encoder.path);
    scene.host.peers.wait_for(|view| !view.contains_key(&encoder)).await;
    for prefill in [None, Some(prefill)] {
        let error = scene.answer(7, ticket.clone(), prefill).await.unwrap_err();
        assert_eq!((error.kind, error.culprit), (ErrorKind::Lost, Some(encoder)), "{error}");
    }
}

#[tokio::test]
async fn rows_of_another_width_are_the_encoders_fault() {
    let scene = Scene::aggregated(None).await;
    let encoder = scene.encoder().await;
    let MediumSource::Encoder(ticket) = scene.encode(encoder, 7).await else {
        panic!("an encoder gives tickets");
    };
    let source = FeatureSource {
        host: scene.host.clone(),
        instance: scene.decode,
        width: WIDTH + 1,
        local: None,
    };
    let medium = &generation(7, MediumSource::Encoder(ticket)).media[0];
    let error = source.fetch_one(medium, &header(1), &Span::none()).await.unwrap_err();
    assert_eq!((error.kind, error.culprit), (ErrorKind::Lost, Some(encoder)));
    let fewer = Medium {
        tokens: ROWS + 1,
        ..medium.clone()
    };
    let source = FeatureSource { width: WIDTH, ..source };
    let error = source.fetch_one(&fewer, &header(1), &Span::none()).await.unwrap_err();
    assert!(error.message.contains("6 rows where 7 were wanted"), "{error}");
}

#[tokio::test]
async fn a_file_needs_an_encoder_at_the_worker() {
    let scene = Scene::aggregated(None).await;
    let error = scene.answer(7, file(7), None).await.unwrap_err();
    assert_eq!((error.kind, error.culprit), (ErrorKind::Unavailable, None));
}

#[tokio::test]
async fn an_earlier_life_of_an_encoder_is_refused() {
    let scene = Scene::aggregated(None).await;
    let encoder = scene.encoder().await;
    let MediumSource::Encoder(ticket) = scene.encode(encoder, 7).await else {
        panic!("an encoder gives tickets");
    };
    let owner = InstanceRef {
        epoch: Epoch(encoder.epoch.0 + 1),
        ..encoder
    };
    let stale = MediumSource::Encoder(FeatureTicket { owner, ..ticket });
    let error = scene.answer(7, stale, None).await.unwrap_err();
    assert_eq!((error.kind, error.culprit), (ErrorKind::Lost, Some(owner)));
}
