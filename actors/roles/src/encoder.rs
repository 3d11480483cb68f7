//! The encoder role: pictures and sounds in, a ticket for their embeddings out; and whoever computes the prompt fetches them
//! under the ticket. It owns the embeddings: it alone forgets them, when it needs the room or when it ends.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use cluster_fabric::{Credits, Request, Sink, clock::before};
use cluster_messages::{
    ActorPath, Capacity, Deadline, Encode, Encoded, ErrorKind, FeatureTicket, Features, FetchFeatures, Header,
    RequestError,
};
use cluster_telemetry::{
    names::{attributes, spans},
    set_parent,
};
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef};
use tracing::{Span, field::Empty};

use crate::{
    failure::{self, Phase},
    host::Registered,
    media::EncoderSettings,
    media_engine::{MediaEngine, Ready, Work},
    protocol::{EncodeFrame, EncodeProtocol, FeaturesProtocol},
    service::Service,
    status::Exit,
    supervisor::{Life, RoleSpec, spawn_linked},
    tasks::Tasks,
    worker::report_load,
};

#[cfg(test)]
mod tests;

/// Embeddings are kept for a ticket no longer than this: a prompt that is not computed by then has them made again.
const HOLD_MAX: Duration = Duration::from_secs(10);
/// How long embeddings stay for other answers to the same request after one has fetched them.
const HOLD_AFTER_FETCH: Duration = Duration::from_secs(2);
/// Who waits is told this often that the encoder gets on.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// Fetches at once: each holds a reference, no memory of its own.
const FETCHES_MAX: u32 = 1024;
/// Bytes of embeddings in one frame.
const FRAME_BYTES: usize = 1 << 20;
/// Frames that may wait for a reader.
const FRAMES_MAX: usize = 8;
/// When whoever found every place taken should come back.
const RETRY_AFTER_MS: u32 = 1000;

/// How to start an encoder.
pub struct EncoderSpec {
    /// Its name.
    pub path: ActorPath,
    /// How it encodes.
    pub settings: EncoderSettings,
}

#[async_trait]
impl RoleSpec for EncoderSpec {
    fn path(&self) -> ActorPath {
        self.path
    }

    async fn spawn(&self, life: Life) -> Result<ActorCell, String> {
        let supervisor = life.supervisor.clone();
        spawn_linked(EncoderActor { life }, self.settings.clone(), supervisor).await
    }
}

struct EncoderActor {
    life: Life,
}

/// What an encoder's actor is told.
pub(crate) enum EncoderMessage {
    /// The media model failed.
    Ended(String),
}

/// A running encoder. Dropping it ends everything it started.
pub(crate) struct EncoderState {
    // First, so that nobody is sent to a door that has just closed.
    _registered: Registered,
    _encoding: Service,
    _fetching: Service,
    _tasks: Tasks,
}

impl Actor for EncoderActor {
    type Msg = EncoderMessage;
    type State = EncoderState;
    type Arguments = EncoderSettings;

    async fn pre_start(
        &self,
        myself: ActorRef<EncoderMessage>,
        settings: EncoderSettings,
    ) -> Result<EncoderState, ActorProcessingErr> {
        Ok(start(&self.life, &settings, myself).await?)
    }

    async fn handle(
        &self,
        _: ActorRef<EncoderMessage>,
        message: EncoderMessage,
        _: &mut EncoderState,
    ) -> Result<(), ActorProcessingErr> {
        // The model's death is the actor's.
        let EncoderMessage::Ended(reason) = message;
        self.life.exit.leave(Exit::EngineLost(reason.clone()));
        Err(reason.into())
    }
}

async fn start(
    life: &Life,
    settings: &EncoderSettings,
    myself: ActorRef<EncoderMessage>,
) -> Result<EncoderState, String> {
    let (host, instance) = (&life.host, life.instance);
    let started = MediaEngine::start(settings, host.fabric.clock.clone()).await;
    let (engine, mut owner) = started.map_err(|error| error.to_string())?;
    let encoder = Arc::new(Encoder {
        life: life.clone(),
        engine: engine.clone(),
    });
    let encoding = {
        let (encoder, places) = (encoder.clone(), Credits::new(settings.waiting_max, RETRY_AFTER_MS));
        let handler = move |request| encoder.clone().encode(request);
        Service::start::<EncodeProtocol, _, _>(&host.fabric.streams, instance, places, handler)?
    };
    let fetching = {
        let places = Credits::new(FETCHES_MAX, RETRY_AFTER_MS);
        let handler = move |request| encoder.clone().hand_out(request);
        Service::start::<FeaturesProtocol, _, _>(&host.fabric.streams, instance, places, handler)?
    };
    let mut tasks = Tasks::default();
    let ended = async move {
        if let Some(reason) = owner.ended().await {
            // A stopped actor no longer cares.
            let _gone = myself.cast(EncoderMessage::Ended(reason));
        }
        // The owner lives as long as this task, and the task as long as the actor.
        std::future::pending::<()>().await;
    };
    tasks.spawn(ended);
    let mut registration = host.registration(instance);
    registration.model = engine.info().fingerprint;
    registration.capacity = Capacity {
        requests: settings.waiting_max,
        ..Capacity::default()
    };
    tasks.spawn(report_load(life.clone(), move || engine.report()));
    let registered = host.register(registration).await?;
    Ok(EncoderState {
        _registered: registered,
        _encoding: encoding,
        _fetching: fetching,
        _tasks: tasks,
    })
}

/// What all requests of one life share.
struct Encoder {
    life: Life,
    engine: MediaEngine,
}

impl Encoder {
    /// Has the embeddings of one file ready.
    async fn encode(self: Arc<Self>, request: Request<EncodeProtocol>) {
        let Request { header, open, respond } = request;
        let phase = Phase::new(self.span(&header, open.tokens));
        let mut sink = respond.accept(FRAMES_MAX);
        let stopped = sink.stopped();
        let result = tokio::select! {
            result = self.make(&header, open, &mut sink) => result,
            () = stopped => Err(self.closed(header.deadline)),
        };
        if let Ok(encoded) = &result {
            phase.span().record(attributes::MEDIA_CACHED, encoded.was_cached);
        }
        // The work is over before anybody hears of it: whoever reads the trace after the answer finds it there.
        phase.end(&result);
        let end = match result {
            Ok(encoded) => sink
                .send(EncodeFrame::Done(encoded))
                .await
                .map_err(|_| self.closed(header.deadline)),
            Err(error) => Err(error),
        };
        sink.finish(end);
    }

    fn span(&self, header: &Header, rows: u32) -> Span {
        let span = tracing::info_span!(
            spans::ENCODER_ENCODE,
            instance = %self.life.instance.path,
            { attributes::MEDIA_ROWS } = rows,
            { attributes::MEDIA_CACHED } = Empty,
            { attributes::ERROR_TYPE } = Empty,
        );
        set_parent(&span, &header.trace.traceparent);
        span
    }

    /// Waits for the embeddings, and tells who waits whether anything gets on meanwhile.
    async fn make(&self, header: &Header, open: Encode, sink: &mut Sink<EncodeFrame>) -> Result<Encoded, RequestError> {
        let clock = &*self.life.host.fabric.clock;
        let deadline = clock.deadline_in(HOLD_MAX).min(header.deadline);
        let work = Work {
            request: header.request,
            deadline: header.deadline,
            digest: open.digest,
            file: open.file,
            rows: open.tokens,
            hold: Some(deadline),
        };
        let mut working = std::pin::pin!(self.engine.encode(work));
        let mut told = self.engine.steps();
        let Ready { was_cached, .. } = loop {
            if let Ok(done) = before(clock, clock.deadline_in(TELL_EVERY), &mut working).await {
                break done?;
            }
            let steps = self.engine.steps();
            if steps != told {
                told = steps;
                // Who has not read the last ones needs no more of them.
                let _behind = sink.try_send(EncodeFrame::Working);
            }
        };
        let ticket = FeatureTicket {
            owner: self.life.instance,
            deadline,
        };
        Ok(Encoded { ticket, was_cached })
    }

    /// Hands embeddings out that were made before.
    async fn hand_out(self: Arc<Self>, request: Request<FeaturesProtocol>) {
        let Request { header, open, respond } = request;
        let Some(features) = self.find(&header, &open) else {
            // Nobody failed: they are made again.
            let message = format!("{} does not hold these embeddings any longer", self.life.instance);
            return respond.refuse(RequestError::new(ErrorKind::Overloaded, message));
        };
        let mut sink = respond.accept(FRAMES_MAX);
        let mut end = Ok(());
        for part in parts(&features) {
            if sink.send(part).await.is_err() {
                end = Err(self.closed(header.deadline));
                break;
            }
        }
        sink.finish(end);
    }

    fn find(&self, header: &Header, open: &FetchFeatures) -> Option<Features> {
        let until = self.life.host.fabric.clock.deadline_in(HOLD_AFTER_FETCH);
        self.engine.fetch(open.digest, header.request, until)
    }

    fn closed(&self, deadline: Deadline) -> RequestError {
        failure::closed(&*self.life.host.fabric.clock, deadline)
    }
}

/// Whole rows, as many as fit a frame. Nothing is copied.
fn parts(features: &Features) -> impl Iterator<Item = Features> {
    let row_bytes = features.width as usize * size_of::<f32>();
    let rows_max = (FRAME_BYTES / row_bytes.max(1)).max(1) as u32;
    (0..features.tokens).step_by(rows_max as usize).map(move |first| {
        let end = features.tokens.min(first + rows_max);
        Features {
            tokens: end - first,
            width: features.width,
            values: features
                .values
                .slice(first as usize * row_bytes..end as usize * row_bytes),
        }
    })
}
