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

/// Who failed one choice so far.
#[derive(Default)]
pub(crate) struct Tries {
    failed: Vec<InstanceRef>,
    count: u32,
}

impl Tries {
    /// An attempt failed with `error`. Whether another one makes sense.
    pub(crate) fn another_after(&mut self, attempt: &Attempt, error: &RequestError) -> bool {
        self.failed.push(attempt.decode);
        self.failed.extend(attempt.prefill);
        error.kind.is_instance_fault() && self.count < TRIES_MAX
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
            self.count += 1;
            let decision = self.route(shared, prepared, header).await;
            let error = match decision {
                Ok((decision, routed)) => match open_at(shared, prepared, header, index, sent, &decision).await {
                    Ok(stream) => {
                        let RouteDecision { decode, prefill, .. } = decision;
                        return Ok(Attempt {
                            stream,
                            decode,
                            prefill,
                            _routed: routed,
                        });
                    }
                    Err(error) => {
                        self.failed.push(decision.decode);
                        error
                    }
                },
                Err(error) => error,
            };
            // Nobody has lost this request yet: the client is told at once that there is no room or nobody to serve it.
            let lost_before = !self.failed.is_empty() && error.kind.is_instance_fault();
            if !lost_before || self.count >= TRIES_MAX && error.kind != ErrorKind::Unavailable {
                return Err(error);
            }
            if error.kind == ErrorKind::Unavailable {
                if clock.remaining(patience).is_zero() {
                    return Err(error);
                }
                clock.sleep(LOOK_AGAIN).await;
            }
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
