//! One try to have a choice generated: ask the router, open a stream there. Knows when another try makes sense.

use std::time::Duration;

use cluster_fabric::Stream;
use cluster_messages::{ErrorKind, Generate, GenerateFrame, Header, InstanceRef, RequestError, Route, RouteDecision};

use super::{Shared, prepare::Prepared};
use crate::{peers::Routed, protocol::GenerateProtocol};

/// Instances tried for one choice before giving up.
const TRIES_MAX: u32 = 6;
/// How long a request that lost its instance waits for another one to appear. The restart of a worker takes less.
const PATIENCE: Duration = Duration::from_secs(15);
/// Between two looks for another instance.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// A stream that was accepted, and the router's note that it runs.
pub(crate) struct Attempt {
    pub(crate) stream: Stream<GenerateFrame>,
    pub(crate) decode: InstanceRef,
    pub(crate) prefill: Option<InstanceRef>,
    /// Tells the router when the attempt is over.
    _routed: Routed,
}

/// Who failed one choice so far, and how.
#[derive(Default)]
pub(crate) struct Tries {
    count: u32,
    /// Instances to avoid while there are others.
    failed: Vec<InstanceRef>,
    /// What the last instance failed with. While there is none, nobody has lost this request, and the client is told at
    /// once that there is no room or nobody to serve it.
    fault: Option<RequestError>,
}

impl Tries {
    /// An accepted attempt failed with `error`. Whether another one makes sense.
    pub(crate) fn another_after(&mut self, attempt: &Attempt, error: &RequestError) -> bool {
        // Which of the two failed is not known: a decode instance passes on what its prefill instance died of.
        self.note([Some(attempt.decode), attempt.prefill], error);
        error.kind.is_instance_fault() && self.count < TRIES_MAX
    }

    fn note(&mut self, by: [Option<InstanceRef>; 2], error: &RequestError) {
        self.failed.extend(by.into_iter().flatten());
        self.fault = Some(error.clone());
    }

    /// Opens a stream for choice `index`, after `sent` tokens of its answer.
    pub(crate) async fn open(
        &mut self,
        shared: &Shared,
        prepared: &Prepared,
        header: &Header,
        index: u32,
        sent: &[u32],
    ) -> Result<Attempt, RequestError> {
        let clock = &shared.host.fabric.clock;
        let patience = clock.deadline_in(PATIENCE).min(header.deadline);
        loop {
            let (decision, routed) = match self.route(shared, prepared, header).await {
                Ok(routing) => routing,
                Err(error) => {
                    self.may_wait(error, clock.remaining(patience).is_zero())?;
                    clock.sleep(LOOK_AGAIN).await;
                    continue;
                }
            };
            self.count += 1;
            let RouteDecision { decode, prefill, .. } = decision;
            match open_at(shared, prepared, header, index, sent, &decision).await {
                Ok(stream) => {
                    return Ok(Attempt {
                        stream,
                        decode,
                        prefill,
                        _routed: routed,
                    });
                }
                Err(error) if error.kind.is_instance_fault() && self.count < TRIES_MAX => {
                    self.note([Some(decode), None], &error);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Nobody can serve now. A request that was lost by somebody waits for a new life, or tries those again that failed.
    fn may_wait(&mut self, error: RequestError, is_too_late: bool) -> Result<(), RequestError> {
        self.failed.clear();
        match &self.fault {
            Some(_) if !is_too_late && error.kind == ErrorKind::Unavailable => Ok(()),
            Some(fault) => Err(fault.clone()),
            None => Err(error),
        }
    }

    async fn route(
        &self,
        shared: &Shared,
        prepared: &Prepared,
        header: &Header,
    ) -> Result<(RouteDecision, Routed), RequestError> {
        let query = Route {
            header: header.clone(),
            blocks: prepared.blocks.clone(),
            prompt_tokens: prepared.prompt.len() as u32,
            exclude: self.failed.clone(),
        };
        shared.host.peers.route(query).await
    }
}

async fn open_at(
    shared: &Shared,
    prepared: &Prepared,
    header: &Header,
    index: u32,
    sent: &[u32],
    decision: &RouteDecision,
) -> Result<Stream<GenerateFrame>, RequestError> {
    let generate = Generate {
        header: header.clone(),
        generation: prepared.generation(index, sent),
        prefill: decision.prefill,
    };
    shared
        .host
        .fabric
        .streams
        .open::<GenerateProtocol>(decision.decode, header.clone(), generate)
        .await
}
