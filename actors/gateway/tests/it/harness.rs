//! A scripted frontend, a server on a free port, and an HTTP client that shows every byte.

use std::{
    collections::HashMap,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use async_trait::async_trait;
use cluster_gateway::{Drained, Environment, Frontend, Gateway, ModelCard, Readiness, Settings, TextStream, serve};
use cluster_messages::{Channel, FinishReason, RequestError, RequestId, TextFrame, TextRequest, ToolHead, Usage};
use cluster_telemetry::Metrics;
use futures::{Stream, StreamExt, stream};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{mpsc, oneshot},
    task::JoinHandle,
};

pub(crate) type Item = Result<TextFrame, RequestError>;
type Play = dyn Fn(&TextRequest) -> Result<TextStream, RequestError> + Send + Sync;

/// Answers every request by `play`, notes the requests, and tells when a stream is dropped.
pub(crate) struct Fake {
    play: Box<Play>,
    pub(crate) requests: Mutex<Vec<TextRequest>>,
    dropped: mpsc::UnboundedSender<RequestId>,
}

impl Fake {
    pub(crate) fn new(
        play: impl Fn(&TextRequest) -> Result<TextStream, RequestError> + Send + Sync + 'static,
    ) -> (Arc<Self>, mpsc::UnboundedReceiver<RequestId>) {
        let (dropped, drops) = mpsc::unbounded_channel();
        let fake = Self {
            play: Box::new(play),
            requests: Mutex::default(),
            dropped,
        };
        (Arc::new(fake), drops)
    }

    /// Plays the same items for everyone.
    pub(crate) fn of(items: Vec<Item>) -> Arc<Self> {
        Self::new(move |_| Ok(TextStream::new(stream::iter(items.clone())))).0
    }
}

#[async_trait]
impl Frontend for Fake {
    async fn generate(&self, request: TextRequest) -> Result<TextStream, RequestError> {
        let id = request.header.request;
        let frames = (self.play)(&request)?;
        self.requests.lock().unwrap().push(request);
        Ok(TextStream::new(Watched {
            frames,
            id,
            dropped: self.dropped.clone(),
        }))
    }

    fn models(&self) -> Arc<[ModelCard]> {
        let card = |id: &str| ModelCard {
            id: id.into(),
            created: 5,
            owned_by: "tests".into(),
            context_max: 4096,
            emulated_by: None,
            fingerprint: None,
        };
        let emulated = ModelCard {
            emulated_by: Some("tiny".into()),
            ..card("org/large")
        };
        Arc::new([card("tiny"), emulated])
    }

    fn ready(&self) -> Readiness {
        Readiness::NotReady("no decode instance".into())
    }
}

struct Watched {
    frames: TextStream,
    id: RequestId,
    dropped: mpsc::UnboundedSender<RequestId>,
}

impl Stream for Watched {
    type Item = Item;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Item>> {
        self.frames.poll_next_unpin(context)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // The test may have stopped listening.
        let _ = self.dropped.send(self.id);
    }
}

/// A clock that stands still and ids that count.
#[derive(Default)]
pub(crate) struct Counting(AtomicU64);

impl Environment for Counting {
    fn cluster_ms(&self) -> u64 {
        1000
    }

    fn unix_seconds(&self) -> u64 {
        1_700_000_000
    }

    fn request_id(&self) -> RequestId {
        RequestId(u128::from(self.0.fetch_add(1, Ordering::Relaxed) + 1))
    }
}

pub(crate) fn admitted() -> Item {
    Ok(TextFrame::Admitted { prompt_tokens: 7 })
}

pub(crate) fn delta(choice: u32, text: &str, tokens: u32) -> Item {
    Ok(TextFrame::Delta {
        channel: Channel::Content,
        choice,
        text: text.into(),
        logprobs: vec![],
        tokens,
    })
}

pub(crate) fn finished(choice: u32, reason: FinishReason) -> Item {
    Ok(TextFrame::Finished { choice, reason })
}

pub(crate) fn usage() -> Item {
    Ok(TextFrame::Usage(Usage {
        prompt_tokens: 7,
        completion_tokens: 3,
        cached_tokens: 4,
        reasoning_tokens: 1,
    }))
}

/// One choice that says "one two".
pub(crate) fn short_answer() -> Vec<Item> {
    vec![
        admitted(),
        delta(0, "one ", 1),
        delta(0, "two", 2),
        finished(0, FinishReason::Stop),
        usage(),
    ]
}

pub(crate) fn thought(choice: u32, text: &str, tokens: u32) -> Item {
    Ok(TextFrame::Delta {
        channel: Channel::Reasoning,
        choice,
        text: text.into(),
        logprobs: vec![],
        tokens,
    })
}

pub(crate) fn call(choice: u32, index: u32, id: Option<&str>, arguments: &str, tokens: u32) -> Item {
    Ok(TextFrame::ToolCall {
        choice,
        index,
        head: id.map(|id| ToolHead {
            id: id.into(),
            name: "f".into(),
        }),
        arguments: arguments.into(),
        logprobs: vec![],
        tokens,
    })
}

/// Two choices: one thinks and calls twice, one is cut while it thinks.
pub(crate) fn calling_answer() -> Vec<Item> {
    vec![
        admitted(),
        thought(0, "hm, ", 1),
        thought(1, "h", 1),
        thought(0, "two", 2),
        call(0, 0, Some("call_a"), "{\"x\":", 6),
        call(0, 0, None, "1}", 7),
        finished(1, FinishReason::Length),
        call(0, 1, Some("call_b"), "{}", 9),
        finished(0, FinishReason::ToolCalls),
        usage(),
    ]
}

/// A running server.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) metrics: Metrics,
    pub(crate) gateway: Arc<Gateway>,
    stop: oneshot::Sender<Duration>,
    served: JoinHandle<Drained>,
}

impl Server {
    pub(crate) async fn start(frontend: Arc<dyn Frontend>, settings: Settings) -> Self {
        Self::start_at(0, frontend, settings).await
    }

    /// Requests get ids from `ids + 1` on. The trace store is one for all tests, so a test that reads it needs its own.
    pub(crate) async fn start_at(ids: u64, frontend: Arc<dyn Frontend>, settings: Settings) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let metrics = Metrics::new();
        let gateway = Gateway::new(
            settings,
            frontend,
            metrics.clone(),
            Arc::new(Counting(AtomicU64::new(ids))),
        );
        let (stop, stopped) = oneshot::channel();
        let stopped = async move { stopped.await.unwrap_or_default() };
        let served = tokio::spawn(serve(listener, gateway.clone(), stopped));
        Self {
            address,
            metrics,
            gateway,
            stop,
            served,
        }
    }

    pub(crate) async fn of(items: Vec<Item>) -> Self {
        Self::start(Fake::of(items), Settings::default()).await
    }

    /// Asks for shutdown; the answer comes when the server has drained.
    pub(crate) fn shut_down(self, grace: Duration) -> JoinHandle<Drained> {
        let _ = self.stop.send(grace);
        self.served
    }

    pub(crate) async fn open(&self, request: &str) -> TcpStream {
        let mut connection = TcpStream::connect(self.address).await.unwrap();
        connection.write_all(request.as_bytes()).await.unwrap();
        connection
    }

    pub(crate) async fn send(&self, request: &str) -> Answer {
        Answer::read(self.open(request).await).await
    }

    pub(crate) async fn post(&self, path: &str, body: &str) -> Answer {
        self.send(&post(path, body)).await
    }

    pub(crate) async fn chat(&self, extra: &str) -> Answer {
        self.send(&chat(extra)).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(&format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"))
            .await
    }
}

pub(crate) fn post(path: &str, body: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// A chat with further fields.
pub(crate) fn chat(extra: &str) -> String {
    let body = format!(r#"{{"model":"tiny","messages":[{{"role":"user","content":"x"}}]{extra}}}"#);
    post("/v1/chat/completions", &body)
}

/// An answer, taken apart.
pub(crate) struct Answer {
    pub(crate) status: u16,
    headers: HashMap<String, String>,
    pub(crate) body: String,
}

impl Answer {
    /// Reads to the end of the connection.
    pub(crate) async fn read(mut connection: TcpStream) -> Self {
        let mut bytes = Vec::new();
        connection.read_to_end(&mut bytes).await.unwrap();
        Self::parse(&String::from_utf8(bytes).unwrap())
    }

    fn parse(text: &str) -> Self {
        let (head, body) = text
            .split_once("\r\n\r\n")
            .unwrap_or_else(|| panic!("no head in {text:?}"));
        let mut lines = head.lines();
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers: HashMap<_, _> = lines
            .map(|line| line.split_once(": ").unwrap())
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        let is_chunked = headers.get("transfer-encoding").is_some_and(|kind| kind == "chunked");
        let body = if is_chunked { unchunked(body) } else { body.to_owned() };
        Self { status, headers, body }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error} in {}", self.body))
    }

    /// The member of the error envelope.
    pub(crate) fn error(&self, member: &str) -> Option<String> {
        let json = self.json();
        let error = json["error"].as_object().expect("an envelope");
        assert_eq!(error.len(), 4);
        error[member].as_str().map(str::to_owned)
    }

    /// The payloads of the events.
    pub(crate) fn events(&self) -> Vec<&str> {
        let events = self.body.split_terminator("\n\n");
        events
            .map(|event| event.strip_prefix("data: ").unwrap_or(event))
            .collect()
    }

    /// The events that are JSON.
    pub(crate) fn chunks(&self) -> Vec<serde_json::Value> {
        let chunks = self.events().into_iter().filter(|event| event.starts_with('{'));
        chunks.map(|chunk| serde_json::from_str(chunk).unwrap()).collect()
    }
}

fn unchunked(mut body: &str) -> String {
    let mut whole = String::new();
    while let Some((length, rest)) = body.split_once("\r\n") {
        let length = usize::from_str_radix(length, 16).unwrap();
        whole.push_str(&rest[..length]);
        body = rest[length..].strip_prefix("\r\n").unwrap();
        if length == 0 {
            break;
        }
    }
    whole
}
