//! Where the embeddings of a prompt's media come from: the encoder that holds them, or the worker's own.

use std::{sync::Arc, time::Duration};

use cluster_fabric::clock::before;
use cluster_messages::{
    ErrorKind, FeatureTicket, Features, FetchFeatures, Header, InstanceRef, MediaFile, Medium, MediumSource,
    RequestError,
};
use cluster_telemetry::names::{attributes, spans};
use tracing::{Instrument, Span, field::Empty};

use crate::{
    engine_host::RunningJob,
    failure,
    host::Host,
    media::about,
    media_engine::{MediaEngine, Work},
    protocol::FeaturesProtocol,
    supervisor::Life,
    tokenizer::context_of,
};

#[cfg(test)]
mod tests;

/// An encoder that is to hand out what it holds, and says nothing for this long, has stalled.
const STALL: Duration = Duration::from_secs(10);
/// More bytes are put into numbers on another thread: the rest of the node must not wait for them.
const INLINE_BYTES_MAX: usize = 256 * 1024;

/// What a run must know of its prompt to find the embeddings.
pub(crate) struct MediaPrompt<'a> {
    pub(crate) media: &'a [Medium],
    pub(crate) header: &'a Header,
}

/// The worker's way to embeddings.
pub(crate) struct FeatureSource {
    host: Host,
    instance: InstanceRef,
    /// Numbers of a row that the model takes.
    width: u32,
    local: Option<MediaEngine>,
}

impl FeatureSource {
    pub(crate) fn new(life: &Life, width: u32, local: Option<MediaEngine>) -> Self {
        Self {
            host: life.host.clone(),
            instance: life.instance,
            width,
            local,
        }
    }

    /// Answers a job that asks for the rows of some of its media, by their index. `span` is the run that needs them.
    pub(crate) async fn supply(
        &self,
        job: &RunningJob,
        asked: &[u32],
        prompt: &MediaPrompt<'_>,
        span: &Span,
    ) -> Result<(), RequestError> {
        let rows = asked.iter().map(async |index| {
            let medium = prompt.media.get(*index as usize);
            let medium = medium.ok_or_else(|| failure::lost("the engine asked for a medium that the prompt lacks"))?;
            let rows = self.fetch_one(medium, prompt.header, span).await;
            let rows = rows.map_err(|error| about(*index as usize, error))?;
            Ok::<_, RequestError>((*index, rows))
        });
        job.supply(futures::future::try_join_all(rows).await?)
    }

    async fn fetch_one(&self, medium: &Medium, header: &Header, span: &Span) -> Result<Arc<[f32]>, RequestError> {
        let span = tracing::info_span!(
            parent: span,
            spans::FEATURES_FETCH,
            instance = %self.instance.path,
            from = Empty,
            { attributes::MEDIA_ROWS } = medium.tokens,
            { attributes::MEDIA_BYTES } = Empty,
            { attributes::MEDIA_CACHED } = Empty,
            { attributes::ERROR_TYPE } = Empty,
        );
        let header = Header {
            trace: context_of(&span),
            ..header.clone()
        };
        let fetched = match &medium.source {
            MediumSource::Encoder(ticket) => self.fetch(medium, *ticket, header).instrument(span.clone()).await,
            MediumSource::File(file) => self.encode(medium, file, &header).instrument(span.clone()).await,
        };
        failure::note(&span, &fetched);
        fetched
    }

    /// From the encoder that holds them. Whatever goes wrong is that encoder's fault: the request is moved, and it is avoided.
    async fn fetch(&self, medium: &Medium, ticket: FeatureTicket, header: Header) -> Result<Arc<[f32]>, RequestError> {
        let span = Span::current();
        span.record("from", tracing::field::display(ticket.owner.path));
        let deadline = header.deadline;
        let fetched = self.receive(medium, ticket, header).await;
        let parts = fetched.map_err(|error| match error.kind {
            ErrorKind::Cancelled | ErrorKind::Overloaded => error,
            _ if self.host.fabric.clock.remaining(deadline).is_zero() => error,
            _ => failure::lost(error.message).caused_by(ticket.owner),
        })?;
        let bytes: usize = parts.iter().map(|part| part.values.len()).sum();
        span.record(attributes::MEDIA_BYTES, bytes);
        numbers_of(parts, bytes).await
    }

    async fn receive(
        &self,
        medium: &Medium,
        ticket: FeatureTicket,
        header: Header,
    ) -> Result<Vec<Features>, RequestError> {
        let fabric = &self.host.fabric;
        let clock = &*fabric.clock;
        let stalled = |_| failure::lost(format!("{} says nothing", ticket.owner));
        let open = FetchFeatures {
            header: header.clone(),
            digest: medium.digest,
        };
        let opening = fabric.streams.open::<FeaturesProtocol>(ticket.owner, header, open);
        let mut stream = before(clock, clock.deadline_in(STALL), opening)
            .await
            .map_err(stalled)??;
        let (mut parts, mut rows) = (Vec::new(), 0);
        while let Some(part) = before(clock, clock.deadline_in(STALL), stream.next())
            .await
            .map_err(stalled)?
        {
            let part = part?;
            self.check_width(part.width, ticket)?;
            rows += part.tokens;
            parts.push(part);
        }
        if rows != medium.tokens {
            let message = format!("{} gave {rows} rows where {} were wanted", ticket.owner, medium.tokens);
            return Err(failure::lost(message));
        }
        Ok(parts)
    }

    fn check_width(&self, width: u32, ticket: FeatureTicket) -> Result<(), RequestError> {
        if width == self.width {
            return Ok(());
        }
        let (owner, wanted) = (ticket.owner, self.width);
        Err(failure::lost(format!(
            "{owner} gave rows of {width} numbers where {wanted} were wanted"
        )))
    }

    /// From this worker's own encoder.
    async fn encode(&self, medium: &Medium, file: &MediaFile, header: &Header) -> Result<Arc<[f32]>, RequestError> {
        let Some(engine) = &self.local else {
            let message = "this instance has no encoder of its own, and the picture was encoded nowhere else";
            return Err(RequestError::new(ErrorKind::Unavailable, message));
        };
        let work = Work {
            request: header.request,
            deadline: header.deadline,
            digest: medium.digest,
            file: file.clone(),
            rows: medium.tokens,
            hold: None,
        };
        let ready = engine.encode(work).await?;
        Span::current().record(attributes::MEDIA_CACHED, ready.was_cached);
        let bytes = ready.features.values.len();
        numbers_of(vec![ready.features], bytes).await
    }
}

/// The rows of all parts, one after the other, as the model takes them.
async fn numbers_of(parts: Vec<Features>, bytes: usize) -> Result<Arc<[f32]>, RequestError> {
    let join = move || {
        // Made in its place: a `Vec` would be copied once more to be shared.
        let mut numbers: Arc<[f32]> = std::iter::repeat_n(0.0, bytes / size_of::<f32>()).collect();
        let places = Arc::get_mut(&mut numbers).expect("nobody else has it yet");
        let words = parts.iter().flat_map(|part| part.values.as_chunks().0);
        for (place, word) in places.iter_mut().zip(words) {
            *place = f32::from_le_bytes(*word);
        }
        numbers
    };
    if bytes <= INLINE_BYTES_MAX {
        return Ok(join());
    }
    let joined = tokio::task::spawn_blocking(join).await;
    joined.map_err(|_| RequestError::new(ErrorKind::Internal, "embeddings could not be put together"))
}
