//! Pictures on their way from a conversation to its answer.

use std::sync::atomic::{AtomicU32, Ordering};

use cluster_fabric::Stream;
use cluster_messages::{
    ChatMessage, ChatPrompt, Content, Encoded, Epoch, FeatureTicket, Fingerprint, InstanceRef, MediaFile, MediumDigest,
    Part, Role, Sampling, TextInput, blocks,
};
use cluster_routing::Policy;
use cluster_text::{GgufVocabulary, Tokenizer, TokenizerSource};

use super::*;
use crate::{
    Decode, EncodeFrame, EncodeProtocol, EncoderSpec, FeaturesProtocol, Measured, MediaMeasure, PrefillSpec,
    RouterSpec, Supervisor, WorkerSpec,
    fixture::{header, host, start, supervisor},
    media_fixture::{BLOCK_TOKENS, BROKEN, CONTEXT, Seen, TORN, digest, picture, settings, worker},
};

const TEMPLATE: &str = "{% for message in messages %}<|user|>{% if message.content is string %}{{ message.content }}\
    {% else %}{% for part in message.content %}{% if part.type == 'image' %}<|patch|>{% else %}{{ part.text }}{% endif %}\
    {% endfor %}{% endif %}<|end|>{% endfor %}";
const CONTROLS: [&str; 5] = ["<|end|>", "<|user|>", "<|image_start|>", "<|patch|>", "<|image_end|>"];
const ROWS: u32 = 6;

/// A row for each pixel.
struct Pixels;

impl MediaMeasure for Pixels {
    fn measure(&self, file: &MediaFile) -> Result<Measured, RequestError> {
        match file.bytes[0] {
            BROKEN => Err(RequestError::new(ErrorKind::Invalid, "not a picture")),
            number => Ok(Measured {
                digest: digest(number),
                tokens: file.bytes.len() as u32 / 3,
            }),
        }
    }
}

fn model(media: Option<Arc<dyn MediaMeasure>>) -> TextModel {
    let source = TokenizerSource::Vocabulary(GgufVocabulary::of_bytes(&CONTROLS, TEMPLATE));
    TextModel {
        tokenizer: Tokenizer::new(source).unwrap(),
        context: CONTEXT,
        fingerprint: Fingerprint(1),
        block_tokens: BLOCK_TOKENS,
        media,
    }
}

fn request(parts: Vec<Part>) -> TextRequest {
    let message = ChatMessage {
        role: "user".into(),
        content: Some(Content::Parts(parts)),
        ..ChatMessage::default()
    };
    let chat = ChatPrompt {
        messages: vec![message],
        ..ChatPrompt::default()
    };
    TextRequest {
        input: TextInput::Chat(chat),
        sampling: Sampling {
            temperature: 0.0,
            ..Sampling::default()
        },
        max_tokens: Some(8),
        ignore_eos: true,
        ..tests::text(1)
    }
}

fn question(number: u8) -> TextRequest {
    request(vec![
        Part::Text("what ".into()),
        Part::Media(picture(number, ROWS)),
        Part::Text("?".into()),
    ])
}

#[test]
fn pictures_have_their_places_and_are_part_of_the_block_hashes() {
    let parts = vec![
        Part::Text("ab".into()),
        Part::Media(picture(1, 2)),
        Part::Media(picture(2, 3)),
    ];
    let prepared = model(Some(Arc::new(Pixels))).prepare(request(parts), 0).unwrap();
    let (start, patch, end) = (258, 259, 260);
    let pictures = [vec![start], vec![patch; 2], vec![end, start], vec![patch; 3], vec![end]].concat();
    assert_eq!(prepared.prompt[3..12], pictures);
    let places: Vec<_> = prepared
        .media
        .iter()
        .map(|medium| (medium.digest, medium.first, medium.tokens))
        .collect();
    assert_eq!(places, [(MediumDigest(1), 4, 2), (MediumDigest(2), 8, 3)]);
    let root = blocks::root(Fingerprint(1), "");
    let hashes = |media| blocks::chain(root, &prepared.prompt, media, BLOCK_TOKENS as usize);
    assert_eq!(prepared.blocks, hashes(&prepared.media));
    assert_ne!(prepared.blocks, hashes(&[]));
}

#[test]
fn a_picture_that_cannot_be_taken_is_named_by_its_field() {
    let broken = || request(vec![Part::Text("a".into()), Part::Media(picture(BROKEN, 2))]);
    for media in [None, Some(Arc::new(Pixels) as Arc<dyn MediaMeasure>)] {
        let error = model(media).prepare(broken(), 0).unwrap_err();
        assert_eq!(
            (error.kind, error.param.as_deref()),
            (ErrorKind::Invalid, Some("messages[0].content[1]"))
        );
    }
}

struct Scene {
    host: Host,
    supervisor: Supervisor,
    tokenizer: InstanceRef,
}

/// A tokenizer, a router, and decode instances: with an encoder and prefill inside, or for others to feed.
async fn scene(apart: bool) -> Scene {
    let host = host().await;
    let supervisor = supervisor(&host).await;
    let router = RouterSpec {
        path: ActorPath::new(Role::Router, 0),
        policy: Policy::kv_aware(),
    };
    start(&host, &supervisor, router).await;
    let tokenizer = TokenizerSpec {
        path: ActorPath::new(Role::Tokenizer, 0),
        requests_max: 16,
        model: Arc::new(model(Some(Arc::new(Pixels)))),
        media: MediaPolicy {
            apart,
            fallback_local: false,
            ..MediaPolicy::default()
        },
    };
    let tokenizer = start(&host, &supervisor, tokenizer).await;
    let local = (!apart).then(|| settings(0, &Seen::default()));
    let folds = if apart { Vec::new() } else { vec![Role::Prefill] };
    let decode = WorkerSpec::<Decode>::new(ActorPath::new(Role::Decode, 0), worker(local, folds));
    start(&host, &supervisor, decode).await;
    if apart {
        let prefill = PrefillSpec::new(ActorPath::new(Role::Prefill, 0), worker(None, Vec::new()));
        start(&host, &supervisor, prefill).await;
    }
    Scene {
        host,
        supervisor,
        tokenizer,
    }
}

impl Scene {
    async fn encoder(&self) -> Seen {
        let seen = Seen::default();
        let encoder = EncoderSpec {
            path: ActorPath::new(Role::Encoder, 0),
            settings: settings(0, &seen),
        };
        start(&self.host, &self.supervisor, encoder).await;
        seen
    }

    async fn answer(&self, number: u8) -> Result<String, RequestError> {
        let streams = &self.host.fabric.streams;
        let opening = streams.open::<TextProtocol>(self.tokenizer, header(number.into()), question(number));
        let mut stream: Stream<TextFrame> = opening.await?;
        let mut said = String::new();
        while let Some(frame) = stream.next().await {
            if let TextFrame::Delta { text, .. } = frame? {
                said.push_str(&text);
            }
        }
        Ok(said)
    }
}

#[tokio::test]
async fn a_picture_is_answered_alike_however_the_roles_are_cut() {
    let (together, apart) = (scene(false).await, scene(true).await);
    let seen = apart.encoder().await;
    let mut answers = Vec::new();
    for number in 1..4 {
        let answer = together.answer(number).await.unwrap();
        assert_eq!(apart.answer(number).await.unwrap(), answer);
        answers.push(answer);
    }
    answers.dedup();
    assert_eq!(answers.len(), 3, "pictures matter");
    assert_eq!(seen.decoded(), 3);
}

#[tokio::test]
async fn a_picture_that_turns_out_broken_is_named_by_its_field_too() {
    let (together, apart) = (scene(false).await, scene(true).await);
    apart.encoder().await;
    for scene in [together, apart] {
        let error = scene.answer(TORN).await.unwrap_err();
        assert_eq!(
            (error.kind, error.param.as_deref()),
            (ErrorKind::Invalid, Some("messages[0].content[1]"))
        );
    }
}

/// An encoder that gives tickets for what it does not have.
struct Liar {
    asked: Arc<AtomicU32>,
    _services: [Service; 2],
    _registered: Registered,
}

impl Liar {
    async fn start(host: &Host) -> Self {
        let instance = InstanceRef {
            path: ActorPath::new(Role::Encoder, 1),
            epoch: Epoch(1),
        };
        let promise = move |request: Request<EncodeProtocol>| async move {
            let ticket = FeatureTicket {
                owner: instance,
                deadline: request.header.deadline,
            };
            let mut sink = request.respond.accept(1);
            let was_cached = true;
            sink.send(EncodeFrame::Done(Encoded { ticket, was_cached }))
                .await
                .unwrap();
            sink.finish(Ok(()));
        };
        let asked = Arc::new(AtomicU32::new(0));
        let counter = asked.clone();
        let forget = move |request: Request<FeaturesProtocol>| {
            counter.fetch_add(1, Ordering::Relaxed);
            request.respond.refuse(failure::lost("forgotten"));
            std::future::ready(())
        };
        let streams = &host.fabric.streams;
        let places = || Credits::new(16, 1000);
        Self {
            asked,
            _services: [
                Service::start::<EncodeProtocol, _, _>(streams, instance, places(), promise).unwrap(),
                Service::start::<FeaturesProtocol, _, _>(streams, instance, places(), forget).unwrap(),
            ],
            _registered: host.register(host.registration(instance)).await.unwrap(),
        }
    }
}

#[tokio::test]
async fn embeddings_that_are_lost_before_the_fetch_are_made_elsewhere() {
    let (together, apart) = (scene(false).await, scene(true).await);
    let seen = apart.encoder().await;
    let liar = Liar::start(&apart.host).await;
    // About half of the pictures are the liar's.
    for number in 1..12 {
        let answer = apart.answer(number).await.unwrap();
        assert_eq!(answer, together.answer(number).await.unwrap(), "picture {number}");
    }
    assert_eq!(seen.decoded(), 11, "in the end the honest one made them all");
    let asked = liar.asked.load(Ordering::Relaxed);
    assert!(
        (1..11).contains(&asked),
        "the liar was believed once per picture of its own, not {asked} times"
    );
}

#[tokio::test(start_paused = true)]
async fn a_picture_that_nobody_encodes_ends_in_one_clean_error() {
    let scene = scene(true).await;
    let error = scene.answer(1).await.unwrap_err();
    assert_eq!((error.kind, error.retry_after_ms), (ErrorKind::Unavailable, Some(1000)));
}
