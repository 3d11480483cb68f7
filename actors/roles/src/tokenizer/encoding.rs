//! The way of a request's media to their embeddings: each is encoded at the encoder that the router chose for it, and
//! elsewhere when that one is full, stalls or dies. Where nobody encodes it, the file itself goes on to whoever computes the
//! prompt, if the topology allows; if not, a request that an encoder failed waits a while for another, and then ends in one
//! error. Where there is no encoder to begin with, it ends at once.

use std::time::Duration;

use cluster_fabric::{Stream, clock::before};
use cluster_messages::{
    Deadline, Encode, Encoded, ErrorKind, FeatureTicket, InstanceRef, Medium, MediumSource, RequestError, Route,
};

use super::attempt::Errand;
use crate::{
    failure,
    media::about,
    peers::Routed,
    protocol::{EncodeFrame, EncodeProtocol},
};

#[cfg(test)]
mod tests;

/// Encoders that one file may cost: a file that kills whoever opens it must not go round the whole cluster.
const LIVES_MAX: u32 = 3;
/// Between two looks for an encoder: at first, and in the end. Many may wait, and each look asks the router.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
const LOOK_AGAIN_MAX: Duration = Duration::from_millis(400);
/// When a client whose files found no encoder should come back.
const RETRY_AFTER_MS: u32 = 1000;

/// Has all media of a request encoded, side by side; where each of them is then. `encoders` are the router's choice, one for
/// each or none at all. A request that `was_moved` waits for encoders to come back: it was promised an answer.
pub(super) async fn encode_all(
    errand: Errand<'_>,
    encoders: &[InstanceRef],
    avoid: &[InstanceRef],
    was_moved: bool,
) -> Result<Vec<MediumSource>, RequestError> {
    let media = errand.prepared.media.iter().enumerate();
    let all = media.map(|(index, medium)| {
        let way = Way {
            errand,
            medium,
            avoid: avoid.to_vec(),
            was_moved,
            lives: 0,
            fault: None,
        };
        async move {
            let encoded = way.run(encoders.get(index).copied()).await;
            encoded.map_err(|error| about(index, error))
        }
    });
    futures::future::try_join_all(all).await
}

/// One medium on its way.
struct Way<'a> {
    errand: Errand<'a>,
    medium: &'a Medium,
    /// Encoders that failed or had no room, while there are others.
    avoid: Vec<InstanceRef>,
    /// Somebody failed the request before this try, perhaps an encoder.
    was_moved: bool,
    lives: u32,
    fault: Option<RequestError>,
}

impl Way<'_> {
    async fn run(mut self, chosen: Option<InstanceRef>) -> Result<MediumSource, RequestError> {
        let policy = self.errand.shared.media;
        let clock = self.errand.shared.host.fabric.clock.clone();
        let patience = clock.deadline_in(policy.patience).min(self.errand.header.deadline);
        let (mut chosen, mut wait) = ((chosen, None), LOOK_AGAIN);
        loop {
            // The router counts the work at the encoder as long as `_routed` lives.
            let (encoder, _routed) = chosen;
            match encoder {
                Some(encoder) => match self.ask(encoder).await {
                    Ok(ticket) => return Ok(MediumSource::Encoder(ticket)),
                    Err(error) => self.failed(encoder, error)?,
                },
                None if policy.fallback_local => return Ok(self.medium.source.clone()),
                None if !self.has_met_one() || clock.remaining(patience).is_zero() => return Err(self.given_up()),
                None => {
                    // Those who had no room may have some now, and the dead may live again.
                    self.avoid.clear();
                    clock.sleep(wait).await;
                    wait = (2 * wait).min(LOOK_AGAIN_MAX);
                }
            }
            chosen = self.choose().await?;
        }
    }

    /// Whether an encoder was there for this request, and may be again. If not, the client hears at once that there is none.
    const fn has_met_one(&self) -> bool {
        self.was_moved || self.fault.is_some()
    }

    /// Another encoder, if there is one.
    async fn choose(&self) -> Result<(Option<InstanceRef>, Option<Routed>), RequestError> {
        let route = Route {
            header: self.errand.header.clone(),
            blocks: Vec::new(),
            prompt_tokens: self.medium.tokens,
            media: vec![self.medium.digest],
            exclude: self.avoid.clone(),
        };
        let (encoders, routed) = self.errand.shared.host.peers.route_encoders(route).await?;
        Ok((encoders.first().copied(), Some(routed)))
    }

    async fn ask(&self, encoder: InstanceRef) -> Result<FeatureTicket, RequestError> {
        let fabric = &self.errand.shared.host.fabric;
        let header = self.errand.header.clone();
        let MediumSource::File(file) = &self.medium.source else {
            return Err(RequestError::new(ErrorKind::Internal, "a prepared medium is a file"));
        };
        let open = Encode {
            header: header.clone(),
            digest: self.medium.digest,
            file: file.clone(),
            tokens: self.medium.tokens,
        };
        let opening = fabric.streams.open::<EncodeProtocol>(encoder, header, open);
        let opened = before(&*fabric.clock, self.stall_at(), opening).await;
        let mut stream = opened.map_err(|_| stalled(encoder))??;
        self.follow(encoder, &mut stream).await
    }

    /// Waits as long as the encoder gets on.
    async fn follow(
        &self,
        encoder: InstanceRef,
        stream: &mut Stream<EncodeFrame>,
    ) -> Result<FeatureTicket, RequestError> {
        let clock = &*self.errand.shared.host.fabric.clock;
        loop {
            let frame = before(clock, self.stall_at(), stream.next()).await;
            match frame.map_err(|_| stalled(encoder))? {
                Some(Ok(EncodeFrame::Working)) => {}
                Some(Ok(EncodeFrame::Done(Encoded { ticket, .. }))) => return Ok(ticket),
                Some(Err(error)) => return Err(error),
                None => return Err(failure::lost(format!("{encoder} ended without an answer"))),
            }
        }
    }

    fn stall_at(&self) -> Deadline {
        let shared = self.errand.shared;
        shared.host.fabric.clock.deadline_in(shared.media.stall)
    }

    /// `encoder` did not encode it. An error when no other should be asked.
    fn failed(&mut self, encoder: InstanceRef, error: RequestError) -> Result<(), RequestError> {
        match error.kind {
            // It has no room, or is not there any longer: not the file's doing.
            ErrorKind::Overloaded | ErrorKind::Unavailable => {}
            ErrorKind::Lost | ErrorKind::Internal => self.lives += 1,
            _ => return Err(error),
        }
        tracing::debug!(%encoder, %error, "a picture or sound is encoded elsewhere");
        self.avoid.push(encoder);
        self.fault = Some(error);
        if self.lives < LIVES_MAX {
            Ok(())
        } else {
            Err(self.given_up())
        }
    }

    /// The one error that the client hears.
    fn given_up(&self) -> RequestError {
        let kind = self.medium.kind;
        let is_full = self
            .fault
            .as_ref()
            .is_some_and(|fault| fault.kind == ErrorKind::Overloaded);
        let error = if is_full {
            RequestError::new(ErrorKind::Overloaded, format!("every {kind} encoder is full"))
        } else {
            RequestError::new(ErrorKind::Unavailable, format!("no encoder can take the {kind} now"))
        };
        error.retry_after(RETRY_AFTER_MS)
    }
}

fn stalled(encoder: InstanceRef) -> RequestError {
    failure::lost(format!("{encoder} makes no progress"))
}
