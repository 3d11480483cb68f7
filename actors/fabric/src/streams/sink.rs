//! The instance's end of an accepted stream.

use std::{
    fmt,
    future::Future,
    marker::PhantomData,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use cluster_messages::{Deadline, RequestError};
use tokio::sync::mpsc;
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::{carrier::End, pipe::RawSink};
use crate::{
    clock::{self, Clock},
    wire::Wire,
};

/// Sends the frames of one request. Dropped without [`Sink::finish`] (a panic, an early return) it tells the reader that
/// the request was lost.
pub struct Sink<F> {
    raw: RawSink,
    sent: u64,
    deadline: Deadline,
    clock: Arc<dyn Clock>,
    frame: PhantomData<fn(F)>,
}

/// Nobody reads any more: the reader stopped, went away, was cut off, or its deadline passed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the reader of the stream is gone")]
pub struct Closed;

/// Why a frame was not taken at once; it comes back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TrySendError<F> {
    /// The reader is behind.
    #[error("the reader of the stream is behind")]
    Full(F),
    /// The reader is gone.
    #[error("the reader of the stream is gone")]
    Closed(F),
}

impl<F: Wire> Sink<F> {
    pub(super) fn new(raw: RawSink, deadline: Deadline, clock: Arc<dyn Clock>) -> Self {
        Self {
            raw,
            sent: 0,
            deadline,
            clock,
            frame: PhantomData,
        }
    }

    /// Sends a frame. Waits while the reader is behind, at most until the request's deadline. A future that is dropped
    /// has sent nothing.
    pub async fn send(&mut self, frame: F) -> Result<(), Closed> {
        match self.try_send(frame) {
            Ok(()) => Ok(()),
            Err(TrySendError::Closed(_)) => Err(Closed),
            Err(TrySendError::Full(frame)) => self.send_when_read(frame).await,
        }
    }

    async fn send_when_read(&mut self, frame: F) -> Result<(), Closed> {
        let reserving = clock::before(&*self.clock, self.deadline, self.raw.packets.reserve());
        let room = reserving.await.map_err(|_| Closed)?.map_err(|_| Closed)?;
        room.send(self.raw.form.number(self.sent, frame));
        self.sent += 1;
        Ok(())
    }

    /// Sends a frame if there is room now.
    pub fn try_send(&mut self, frame: F) -> Result<(), TrySendError<F>> {
        let room = match self.raw.packets.try_reserve() {
            Ok(room) => room,
            Err(mpsc::error::TrySendError::Full(())) => return Err(TrySendError::Full(frame)),
            Err(mpsc::error::TrySendError::Closed(())) => return Err(TrySendError::Closed(frame)),
        };
        room.send(self.raw.form.number(self.sent, frame));
        self.sent += 1;
        Ok(())
    }

    /// Ends the stream: all frames sent are delivered, then the end, or the error. Never waits.
    pub fn finish(self, result: Result<(), RequestError>) {
        let end = End {
            frames: self.sent,
            result,
        };
        self.raw.finish(end);
    }

    /// Completes when the reader asked to stop, went away or was cut off. It does not borrow the sink: a sending loop can
    /// keep one beside it.
    pub fn stopped(&self) -> Stopped {
        Stopped(Box::pin(self.raw.stop.clone().cancelled_owned()))
    }

    /// Whether [`Sink::stopped`] would complete now.
    pub fn is_stopped(&self) -> bool {
        self.raw.stop.is_cancelled()
    }
}

impl<F> fmt::Debug for Sink<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sink({} frames sent)", self.sent)
    }
}

/// See [`Sink::stopped`].
pub struct Stopped(Pin<Box<WaitForCancellationFutureOwned>>);

impl Future for Stopped {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.0.as_mut().poll(context)
    }
}
