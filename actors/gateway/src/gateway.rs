//! The gateway itself: from a request's head to the answer's.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use bytes::Bytes;
use cluster_messages::{Deadline, ErrorKind, Header, RequestId, TextRequest, TraceContext};
use cluster_telemetry::Metrics;
use hyper::{
    HeaderMap, Request, Response,
    header::{CONTENT_TYPE, HeaderValue},
};
use serde::Serialize;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::{
    account::Account,
    answer, body,
    chunks::{Chunks, Identity},
    error::{ApiError, Fault},
    events::EventStream,
    fields::{self, Call},
    frames::Frames,
    frontend::{Frontend, ModelCard, Readiness, TextStream},
    json::Json,
    media::{Fetches, Internet, Link, Network},
    patience::Patience,
    response::{self, Body},
    routes::{self, Api, Endpoint},
    settings::{Environment, Settings},
};

const REQUEST_ID: &str = "x-request-id";
const IGNORED_FIELDS: &str = "x-cluster-ignored-fields";
const HEADER_BYTES_MAX: usize = 1024;
/// Longer bodies, mostly those with files, are read in another thread: they take milliseconds.
const INLINE_BYTES_MAX: usize = 256 << 10;

/// Answers HTTP requests with the help of a frontend.
pub struct Gateway {
    settings: Settings,
    frontend: Arc<dyn Frontend>,
    metrics: Metrics,
    environment: Arc<dyn Environment>,
    fetches: Fetches,
    /// One per request between admission and last byte.
    places: Arc<Semaphore>,
    is_draining: AtomicBool,
    cut: CancellationToken,
}

/// A request that the frontend took.
struct Opened {
    call: Started,
    frames: Frames,
    place: OwnedSemaphorePermit,
    since: Instant,
}

/// What is still needed of a request once it was handed on.
struct Started {
    api: Api,
    request: RequestId,
    card: ModelCard,
    choices: u32,
    wants_logprobs: bool,
    stream: bool,
    include_usage: bool,
    ignored: Vec<String>,
}

impl Gateway {
    /// A gateway in front of `frontend`.
    pub fn new(
        settings: Settings,
        frontend: Arc<dyn Frontend>,
        metrics: Metrics,
        environment: Arc<dyn Environment>,
    ) -> Arc<Self> {
        Self::with_network(settings, frontend, metrics, environment, Arc::new(Internet))
    }

    /// A gateway that fetches files through `network`.
    pub fn with_network(
        settings: Settings,
        frontend: Arc<dyn Frontend>,
        metrics: Metrics,
        environment: Arc<dyn Environment>,
        network: Arc<dyn Network>,
    ) -> Arc<Self> {
        Arc::new(Self {
            fetches: Fetches::new(&settings.limits.media, network),
            places: Arc::new(Semaphore::new(settings.requests_max)),
            settings,
            frontend,
            metrics,
            environment,
            is_draining: AtomicBool::new(false),
            cut: CancellationToken::new(),
        })
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(crate) fn start_draining(&self) {
        self.is_draining.store(true, Ordering::Relaxed);
    }

    /// Ends every running request with an error event, now. A drain in progress does not wait any longer.
    pub fn cut(&self) {
        self.cut.cancel();
    }

    pub(crate) async fn until_cut(&self) {
        self.cut.cancelled().await;
    }

    /// Whether no request is between its head and its last byte.
    pub(crate) fn is_idle(&self) -> bool {
        self.metrics.requests_in_flight().get() == 0
    }

    /// Answers one request. Every answer names its request in `x-request-id`.
    pub async fn handle<B>(&self, request: Request<B>) -> Response<Body>
    where
        B: hyper::body::Body<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let id = self.environment.request_id();
        let mut response = self
            .dispatch(id, request)
            .await
            .unwrap_or_else(|error| error.response());
        response.headers_mut().insert(REQUEST_ID, header_value(&id.to_string()));
        response
    }

    async fn dispatch<B>(&self, id: RequestId, request: Request<B>) -> Result<Response<Body>, ApiError>
    where
        B: hyper::body::Body<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        match routes::find(request.method(), request.uri().path())? {
            Endpoint::Generate(api) => self.generate(api, id, request).await,
            Endpoint::Models => Ok(self.models()),
            Endpoint::Model(name) => self
                .card(&percent_decoded(name))
                .map(|card| response::json(&CardJson::from(&card))),
            Endpoint::Health => Ok(response::json(&Alive { status: "ok" })),
            Endpoint::Ready => self.ready(),
            Endpoint::Metrics => Ok(response::metrics(self.metrics.encode())),
        }
    }

    async fn generate<B>(&self, api: Api, id: RequestId, request: Request<B>) -> Result<Response<Body>, ApiError>
    where
        B: hyper::body::Body<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (head, body) = request.into_parts();
        let traceparent = head.headers.get("traceparent").and_then(|value| value.to_str().ok());
        let mut account = Account::open(&self.metrics, id, api, traceparent);
        let opened = self.open(api, id, &head.headers, body, &account).await;
        let opened = opened.inspect_err(|error| account.failed(error))?;
        account.admitted(
            opened.call.card.id.clone(),
            opened.call.choices,
            opened.since,
            opened.place,
        );
        let ignored = ignored_header(&opened.call.ignored);
        let mut response = self.answer(opened.call, opened.frames, account).await?;
        if let Some(ignored) = ignored {
            response.headers_mut().insert(IGNORED_FIELDS, ignored);
        }
        Ok(response)
    }

    /// Reads, checks and hands on: all that can still end in a status of its own.
    async fn open<B>(
        &self,
        api: Api,
        request: RequestId,
        headers: &HeaderMap,
        body: B,
        account: &Account,
    ) -> Result<Opened, ApiError>
    where
        B: hyper::body::Body<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        body::check_kind(headers)?;
        let bytes = body::read(body, self.settings.limits.body_bytes_max, self.settings.body_time).await?;
        let since = Instant::now();
        let call = self.call(api, request, bytes, account).await?;
        let card = self.card(&call.text.model)?;
        let place = self.admit()?;
        let started = Started {
            api,
            request,
            card,
            choices: call.text.choices,
            wants_logprobs: call.text.logprobs.is_some(),
            stream: call.stream,
            include_usage: call.include_usage,
            ignored: call.ignored,
        };
        let mut patience = Patience::new(self.settings.request_time, &self.cut);
        let stream = tokio::select! {
            stream = self.hand_on(call.text, call.links).instrument(account.span().clone()) => stream?,
            error = &mut patience => return Err(error),
        };
        Ok(Opened {
            frames: Frames::new(stream, patience, started.choices),
            call: started,
            place,
            since,
        })
    }

    /// Fetches what is still missing, then asks for text.
    async fn hand_on(&self, mut text: TextRequest, links: Vec<Link>) -> Result<TextStream, ApiError> {
        self.fetches.fill(&mut text, links).await?;
        Ok(self.frontend.generate(text).await?)
    }

    async fn call(&self, api: Api, request: RequestId, bytes: Bytes, account: &Account) -> Result<Call, ApiError> {
        let header = Header {
            request,
            deadline: Deadline(self.environment.cluster_ms() + self.settings.request_time.as_millis() as u64),
            trace: TraceContext {
                traceparent: cluster_telemetry::traceparent_of(account.span()),
            },
        };
        let call = if bytes.len() > INLINE_BYTES_MAX {
            let limits = self.settings.limits.clone();
            let reading =
                tokio::task::spawn_blocking(move || fields::read(api, &Json::parse(&bytes)?, &limits, header));
            reading
                .await
                .expect("reading a body does not panic, and the runtime outlives its requests")?
        } else {
            fields::read(api, &Json::parse(&bytes)?, &self.settings.limits, header)?
        };
        account.asked(&call.text, call.stream);
        Ok(call)
    }

    /// Takes a place, or refuses at once: a queue here would only hide from the client that we are full.
    fn admit(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        self.places.clone().try_acquire_owned().map_err(|_| {
            let message = format!("all {} places are taken; try again later", self.settings.requests_max);
            ApiError {
                retry_after_ms: Some(self.settings.retry_after_ms),
                ..ApiError::new(Fault::Request(ErrorKind::Overloaded), message)
            }
        })
    }

    async fn answer(&self, call: Started, frames: Frames, mut account: Account) -> Result<Response<Body>, ApiError> {
        let identity = Identity {
            api: call.api,
            request: call.request,
            created: self.environment.unix_seconds(),
            model: &call.card.id,
            fingerprint: call.card.fingerprint.as_deref(),
        };
        if call.stream {
            let chunks = Chunks::new(&identity, call.choices, call.include_usage);
            let keep_alive = self.settings.keep_alive;
            let stream = EventStream::open(frames, chunks, account, call.include_usage, keep_alive).await?;
            return Ok(response::events(stream));
        }
        let whole = answer::gather(frames, &mut account, call.choices, &identity, call.wants_logprobs).await;
        let bytes = whole.inspect_err(|error| account.failed(error))?;
        account.succeeded();
        let mut response = Response::new(Body::whole(bytes));
        response.headers_mut().insert(CONTENT_TYPE, response::JSON);
        Ok(response)
    }

    fn card(&self, name: &str) -> Result<ModelCard, ApiError> {
        let models = self.frontend.models();
        models.iter().find(|card| card.id == name).cloned().ok_or_else(|| {
            let name: String = name.chars().take(128).collect();
            let message = format!("model '{name}' is not served here; GET /v1/models lists what is");
            ApiError {
                param: Some("model".into()),
                ..ApiError::new(Fault::Request(ErrorKind::ModelNotFound), message)
            }
        })
    }

    fn models(&self) -> Response<Body> {
        let models = self.frontend.models();
        response::json(&Cards {
            object: "list",
            data: models.iter().map(CardJson::from).collect(),
        })
    }

    fn ready(&self) -> Result<Response<Body>, ApiError> {
        let unavailable = |reason| Err(ApiError::new(Fault::Request(ErrorKind::Unavailable), reason));
        if self.is_draining.load(Ordering::Relaxed) {
            return unavailable("the server is shutting down".to_owned());
        }
        match self.frontend.ready() {
            Readiness::Ready => Ok(response::json(&Alive { status: "ready" })),
            Readiness::NotReady(reason) => unavailable(reason),
        }
    }
}

#[derive(Serialize)]
struct Alive {
    status: &'static str,
}

#[derive(Serialize)]
struct Cards<'a> {
    object: &'static str,
    data: Vec<CardJson<'a>>,
}

#[derive(Serialize)]
struct CardJson<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    owned_by: &'a str,
    max_model_len: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    emulated_by: Option<&'a str>,
}

impl<'a> From<&'a ModelCard> for CardJson<'a> {
    fn from(card: &'a ModelCard) -> Self {
        Self {
            id: &card.id,
            object: "model",
            created: card.created,
            owned_by: &card.owned_by,
            max_model_len: card.context_max,
            emulated_by: card.emulated_by.as_deref(),
        }
    }
}

/// The names of fields without effect, for whoever debugs a client. Only printable ASCII may stand in a header.
fn ignored_header(ignored: &[String]) -> Option<HeaderValue> {
    if ignored.is_empty() {
        return None;
    }
    let names = ignored.join(",");
    let printable = names.chars().map(|c| if c.is_ascii_graphic() { c } else { '?' });
    Some(header_value(&printable.take(HEADER_BYTES_MAX).collect::<String>()))
}

fn header_value(printable: &str) -> HeaderValue {
    HeaderValue::from_str(printable).expect("only printable ASCII comes here")
}

/// Served names with slashes arrive as they are or as `%2F`.
fn percent_decoded(name: &str) -> String {
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name.as_bytes();
    while let [first, tail @ ..] = rest {
        let decoded = match rest {
            [b'%', high, low, ..] => hex_pair(*high, *low),
            _ => None,
        };
        bytes.push(decoded.unwrap_or(*first));
        rest = if decoded.is_some() { &rest[3..] } else { tail };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn hex_pair(high: u8, low: u8) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(high)? * 16 + digit(low)?).ok()
}
