//! One try to have a choice generated: ask the router, have the media encoded, open a stream there. Knows when another try makes sense.

use std::time::Duration;

use cluster_fabric::{
    Stream,
    clock::{Elapsed, before},
};
use cluster_messages::{
    ErrorKind, Generate, GenerateFrame, Header, InstanceRef, MediumSource, RequestError, Route, RouteDecision,
    TraceContext,
};

use super::{Shared, encoding::encode_all, prepare::Prepared};
use crate::{peers::Routed, protocol::GenerateProtocol};

#[cfg(test)]
mod tests;

/// Lives that one choice may cost without a token of progress. A request that kills whoever takes it must not go round
/// the whole cluster.
const LIVES_MAX: u32 = 3;
/// How long a request that lost its instance waits for another one to appear or to have room. A worker's restart takes less.
const PATIENCE: Duration = Duration::from_secs(15);
/// How long chosen workers keep a place for a request whose media are being encoded.
const WORKERS_WAIT_MAX: Duration = Duration::from_millis(250);
/// Between two looks for another instance.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// One choice of one request: what an attempt is made for.
#[derive(Clone, Copy)]
pub(crate) struct Errand<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) prepared: &'a Prepared,
    pub(crate) header: &'a Header,
    pub(crate) index: u32,
}

/// What of its answer the client has already.
#[derive(Clone, Copy, Default)]
pub(crate) struct Reached<'a> {
    pub(crate) tokens: &'a [u32],
    pub(crate) has_echo: bool,
}

/// A stream that was accepted, and the router's note that it runs.
pub(crate) struct Attempt {
    pub(crate) stream: Stream<GenerateFrame>,
    pub(crate) decode: InstanceRef,
    prefill: Option<InstanceRef>,
    /// Where it is in the trace, once it has started.
    run: TraceContext,
    /// Tells the router when the attempt is over.
    routed: Routed,
}

impl Attempt {
    /// The prompt is done; a prefill instance has no more work with it.
    pub(crate) fn started(&mut self, run: TraceContext) {
        self.run = run;
        if self.prefill.is_some() {
            self.routed.prefill_is_done();
        }
    }
}

/// Who failed one choice so far, and how.
#[derive(Default)]
pub(crate) struct Tries {
    /// Lives it cost since the last progress.
    lives: u32,
    /// How often it was moved, and from which run.
    moves: u32,
    moved_from: TraceContext,
    /// Instances to avoid while there are others.
    avoid: Vec<InstanceRef>,
    /// What the last instance failed with. While there is none, nobody has lost this request, and the client is told at
    /// once that there is no room or nobody to serve it.
    fault: Option<RequestError>,
    /// The first door that had no room.
    full: Option<RequestError>,
    /// Where each of the media is; empty until they are encoded.
    sources: Vec<MediumSource>,
    /// Since when nobody has had room for it, in milliseconds of the cluster clock.
    crowded_since: Option<u64>,
}

impl Tries {
    /// An accepted attempt failed with `error`, after some progress or none. Whether another one makes sense.
    pub(crate) fn another_after(
        &mut self,
        attempt: &Attempt,
        error: &RequestError,
        has_progressed: bool,
        now_ms: u64,
    ) -> bool {
        let is_another = self.broke_off([Some(attempt.decode), attempt.prefill], error, has_progressed, now_ms);
        if is_another {
            self.moves += 1;
            self.moved_from = attempt.run.clone();
        }
        is_another
    }

    /// `by` failed while they worked. Unless the error says so, which of them is not known: a decode instance passes on what
    /// its prefill instance died of.
    fn broke_off(
        &mut self,
        by: [Option<InstanceRef>; 2],
        error: &RequestError,
        has_progressed: bool,
        now_ms: u64,
    ) -> bool {
        if has_progressed {
            (self.lives, self.crowded_since) = (0, None);
        }
        match error.culprit {
            Some(culprit) => self.avoid.push(culprit),
            None => self.avoid.extend(by.into_iter().flatten()),
        }
        self.fault = Some(error.clone());
        // Tickets are renewed: an encoder that still has the embeddings finds them, another one makes them.
        self.sources.clear();
        if error.kind == ErrorKind::Overloaded {
            // A prefill instance had no room for what a decode instance had taken.
            let since = *self.crowded_since.get_or_insert(now_ms);
            return Duration::from_millis(now_ms.saturating_sub(since)) < PATIENCE;
        }
        self.crowded_since = None;
        self.lives += 1;
        error.kind.is_instance_fault() && self.lives < LIVES_MAX
    }

    /// `by` did not take the request. An error when no other should be asked.
    fn refused(&mut self, by: InstanceRef, error: RequestError) -> Result<(), RequestError> {
        self.avoid.push(by);
        match error.kind {
            ErrorKind::Overloaded => {
                self.full.get_or_insert(error);
                return Ok(());
            }
            // Nobody is there any longer, so this cannot be the request's doing.
            ErrorKind::Unavailable => {}
            ErrorKind::Lost | ErrorKind::Internal => self.lives += 1,
            _ => return Err(error),
        }
        self.fault = Some(error.clone());
        if self.lives < LIVES_MAX { Ok(()) } else { Err(error) }
    }

    /// Nobody can serve now. A request that was lost by somebody waits for a new life or for room, and asks those again
    /// that refused it.
    fn unrouted(&mut self, error: RequestError, is_too_late: bool) -> Result<(), RequestError> {
        self.avoid.clear();
        match &self.fault {
            Some(_) if !is_too_late && matches!(error.kind, ErrorKind::Unavailable | ErrorKind::Overloaded) => Ok(()),
            Some(fault) => Err(fault.clone()),
            None => Err(self.full.take().unwrap_or(error)),
        }
    }

    /// Opens a stream for `errand`, whose answer the client has as far as `reached`.
    pub(crate) async fn open(&mut self, errand: Errand<'_>, reached: Reached<'_>) -> Result<Attempt, RequestError> {
        let clock = &errand.shared.host.fabric.clock;
        let patience = clock.deadline_in(PATIENCE).min(errand.header.deadline);
        if self.crowded_since.is_some() {
            clock.sleep(LOOK_AGAIN).await;
        }
        loop {
            match self.route(errand).await {
                Err(error) => {
                    self.unrouted(error, clock.remaining(patience).is_zero())?;
                    clock.sleep(LOOK_AGAIN).await;
                }
                Ok((decision, routed)) => {
                    let Some(routed) = self.encode(errand, &decision, routed).await? else {
                        continue;
                    };
                    match self.open_at(errand, reached, &decision).await {
                        Err(error) => self.refused(decision.decode, error)?,
                        Ok(stream) => {
                            return Ok(Attempt {
                                stream,
                                decode: decision.decode,
                                prefill: decision.prefill,
                                run: TraceContext::default(),
                                routed,
                            });
                        }
                    }
                }
            }
        }
    }

    /// Whether the media are to be encoded before a worker is asked.
    fn wants_encoding(&self, errand: Errand<'_>) -> bool {
        errand.shared.media.apart && self.sources.len() < errand.prepared.media.len()
    }

    /// Has the media encoded, unless they are. None when that took so long that the workers have to be chosen again: their
    /// places were given back meanwhile.
    async fn encode(
        &mut self,
        errand: Errand<'_>,
        decision: &RouteDecision,
        routed: Routed,
    ) -> Result<Option<Routed>, RequestError> {
        if !self.wants_encoding(errand) {
            return Ok(Some(routed));
        }
        let clock = &errand.shared.host.fabric.clock;
        let mut encoding = std::pin::pin!(encode_all(
            errand,
            &decision.encoders,
            &self.avoid,
            self.fault.is_some()
        ));
        let quickly = before(&**clock, clock.deadline_in(WORKERS_WAIT_MAX), &mut encoding).await;
        let (sources, routed) = match quickly {
            Ok(sources) => {
                routed.encoders_are_done();
                (sources?, Some(routed))
            }
            Err(Elapsed) => {
                routed.workers_are_not_wanted();
                (encoding.await?, None)
            }
        };
        self.sources = sources;
        Ok(routed)
    }

    async fn route(&self, errand: Errand<'_>) -> Result<(RouteDecision, Routed), RequestError> {
        let prepared = errand.prepared;
        let to_encode = if self.wants_encoding(errand) {
            &prepared.media[..]
        } else {
            &[]
        };
        let query = Route {
            media: to_encode.iter().map(|medium| medium.digest).collect(),
            header: errand.header.clone(),
            blocks: prepared.blocks.clone(),
            prompt_tokens: prepared.prompt.len() as u32,
            exclude: self.avoid.clone(),
        };
        errand.shared.host.peers.route(query).await
    }

    async fn open_at(
        &self,
        errand: Errand<'_>,
        reached: Reached<'_>,
        decision: &RouteDecision,
    ) -> Result<Stream<GenerateFrame>, RequestError> {
        let header = errand.header.clone();
        let mut generation = errand.prepared.generation(errand.index, reached);
        for (medium, source) in generation.media.iter_mut().zip(&self.sources) {
            medium.source = source.clone();
        }
        let generate = Generate {
            header: header.clone(),
            generation,
            prefill: decision.prefill,
            attempt: self.moves,
            moved_from: self.moved_from.clone(),
        };
        let streams = &errand.shared.host.fabric.streams;
        streams
            .open::<GenerateProtocol>(decision.decode, header, generate)
            .await
    }
}
