//! What a carrier of request streams has to do, without types: offers go in, numbered packets and one end come out.
//!
//! A carrier inside one process moves values as they are ([`Form::Values`]); a carrier between processes moves their
//! bytes ([`Form::Bytes`]). The typed face asks which and packs accordingly.

use std::any::Any;

use async_trait::async_trait;
use bytes::Bytes;
use cluster_messages::{Epoch, Header, InstanceRef, RequestError};
use futures::stream::BoxStream;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::pipe::{RawSink, pipe};
use crate::wire::{self, Wire, WireError};

/// In which form a carrier wants values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// As they are: both ends share the process.
    Values,
    /// Encoded.
    Bytes,
}

impl Form {
    /// `value` in this form.
    pub fn pack<T: Wire>(self, value: T) -> Parcel {
        match self {
            Form::Values => Parcel::Value(Box::new(value)),
            Form::Bytes => Parcel::Bytes(wire::encode(&value).expect("messages are plain types, which always encode")),
        }
    }

    pub(super) fn number<T: Wire>(self, seq: u64, frame: T) -> Packet {
        Packet {
            seq,
            body: self.pack(frame),
        }
    }
}

/// A value on its way.
pub enum Parcel {
    /// As it is.
    Value(Box<dyn Any + Send>),
    /// Encoded by [`crate::wire::encode`].
    Bytes(Bytes),
}

impl Parcel {
    /// The value again.
    pub fn unpack<T: Wire>(self) -> Result<T, WireError> {
        match self {
            Parcel::Bytes(bytes) => wire::decode(&bytes),
            Parcel::Value(value) => value.downcast().map(|value| *value).map_err(|_| WireError {
                type_name: std::any::type_name::<T>(),
                action: "decoded",
                reason: "the other end sent a value of another type".into(),
            }),
        }
    }
}

/// One frame, numbered from 0 within its stream.
pub struct Packet {
    /// Its number.
    pub seq: u64,
    /// What it carries.
    pub body: Parcel,
}

/// The end of a stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct End {
    /// How many frames came before it, so that a loss just before the end is noticed too.
    pub frames: u64,
    /// Whether the work was done.
    pub result: Result<(), RequestError>,
}

/// What a carrier delivers.
pub enum Item {
    /// A frame.
    Frame(Packet),
    /// The end; nothing follows.
    End(End),
}

/// The asker's end of a stream.
pub struct RawStream {
    /// Frames in order, then one `End`. A source that ends without one has lost its peer.
    pub items: BoxStream<'static, Item>,
    /// Tells the other end.
    pub stop: StopSignal,
}

/// Tells the sending end that nobody needs more frames. Dropping it tells the same.
pub struct StopSignal(CancellationToken);

impl StopSignal {
    /// A signal that raises `token`.
    pub fn new(token: CancellationToken) -> Self {
        Self(token)
    }

    /// Tells it.
    pub fn raise(&self) {
        self.0.cancel();
    }
}

impl Drop for StopSignal {
    fn drop(&mut self) {
        self.raise();
    }
}

/// A request at an instance's door, not yet accepted.
pub struct Offer {
    /// Request, deadline on the instance's own clock, trace.
    pub header: Header,
    /// The protocol's `Open`.
    pub open: Parcel,
    /// Takes the decision.
    pub decision: Decision,
}

/// Where the instance's decision goes. Dropped undecided, the asker learns that the instance went away.
pub struct Decision {
    /// The form in which the carrier wants the frames.
    pub form: Form,
    /// Raised when the connection to the asker is gone; none: they share a process.
    pub link: Option<CancellationToken>,
    /// Closed when the asker gave up.
    pub answer: oneshot::Sender<Result<RawStream, RequestError>>,
}

impl Decision {
    /// Accepts; at most `capacity` frames wait for the reader. Whether the asker is still there shows at the first send.
    pub(super) fn accept(self, capacity: usize) -> RawSink {
        let (sink, stream) = pipe(capacity, self.form, self.link);
        // The answer to an asker that gave up is dropped with the stream in it, which closes the sink.
        drop(self.answer.send(Ok(stream)));
        sink
    }

    /// Refuses.
    pub fn refuse(self, error: RequestError) {
        // An asker that gave up does not need to hear it.
        drop(self.answer.send(Err(error)));
    }

    /// Completes when the asker gave up.
    pub async fn abandoned(&mut self) {
        self.answer.closed().await;
    }

    /// Whether the asker gave up.
    pub fn is_abandoned(&self) -> bool {
        self.answer.is_closed()
    }
}

/// The requests that arrive for one instance and protocol.
pub struct RawIncoming {
    /// Them, bounded.
    pub offers: mpsc::Receiver<Offer>,
    /// Ends the service when dropped.
    pub registration: Box<dyn Any + Send + Sync>,
}

/// Why an instance cannot serve.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ServeError {
    /// A later life of this actor serves already.
    #[error("{instance} is stale: a later life with epoch {} serves already", known.0)]
    Stale {
        /// Who tried.
        instance: InstanceRef,
        /// The epoch that serves.
        known: Epoch,
    },
    /// This life already serves this protocol.
    #[error("{instance} already serves {protocol}")]
    Taken {
        /// Who tried.
        instance: InstanceRef,
        /// What it tried to serve.
        protocol: &'static str,
    },
}

/// Carries request streams.
#[async_trait]
pub trait StreamCarrier: Send + Sync + 'static {
    /// Begins to take offers for `instance`; at most `queue` wait, further ones are refused as overloaded.
    fn serve(&self, instance: InstanceRef, protocol: &'static str, queue: usize) -> Result<RawIncoming, ServeError>;

    /// In which form `open` wants its parcel for this target.
    fn form(&self, to: InstanceRef) -> Form;

    /// Offers a request and waits for the decision. The caller watches the deadline and drops the future when it passes.
    ///
    /// Errors of the carrier itself: `Lost` for an instance in another life than its present one, or one that went away
    /// while deciding; `Unavailable` for an unknown or unreachable one; `Overloaded` when its queue is full.
    async fn open(
        &self,
        to: InstanceRef,
        protocol: &'static str,
        header: Header,
        open: Parcel,
    ) -> Result<RawStream, RequestError>;
}
