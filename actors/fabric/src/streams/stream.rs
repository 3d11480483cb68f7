//! The asker's end of an accepted stream: checks the numbers, delivers the frames, ends exactly once.

use std::{
    fmt,
    future::poll_fn,
    marker::PhantomData,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use cluster_messages::{Deadline, ErrorKind, InstanceRef, RequestError};

use super::{
    carrier::{End, Item, Packet, RawStream},
    deadline_passed, internal,
};
use crate::{
    clock::{Clock, Sleep},
    wire::Wire,
};

/// The frames of one request. Dropping it tells the instance to stop.
pub struct Stream<F> {
    /// None once the stream has ended.
    raw: Option<RawStream>,
    from: InstanceRef,
    received: u64,
    deadline: Deadline,
    clock: Arc<dyn Clock>,
    /// Started at the first wait.
    timer: Option<Sleep>,
    frame: PhantomData<fn() -> F>,
}

impl<F: Wire> Stream<F> {
    pub(super) fn new(raw: RawStream, from: InstanceRef, deadline: Deadline, clock: Arc<dyn Clock>) -> Self {
        Self {
            raw: Some(raw),
            from,
            received: 0,
            deadline,
            clock,
            timer: None,
            frame: PhantomData,
        }
    }

    /// The next frame. `None` after the last one of work that was done; otherwise one error is the last item. A stream
    /// whose instance dies, skips a frame or outlasts the request's deadline ends in an error, too.
    pub async fn next(&mut self) -> Option<Result<F, RequestError>> {
        poll_fn(|context| self.poll(context)).await
    }

    /// Asks the instance to stop. What it still sends and how it ends can be read on.
    pub fn stop(&self) {
        if let Some(raw) = &self.raw {
            raw.stop.raise();
        }
    }

    /// Whom the frames come from.
    pub fn instance(&self) -> InstanceRef {
        self.from
    }

    /// Whether the end was delivered.
    pub fn has_ended(&self) -> bool {
        self.raw.is_none()
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<F, RequestError>>> {
        loop {
            let Some(raw) = &mut self.raw else {
                return Poll::Ready(None);
            };
            let item = match raw.items.as_mut().poll_next(context) {
                Poll::Ready(item) => item,
                Poll::Pending => return self.poll_deadline(context),
            };
            match item {
                // A carrier that repeats itself does no harm.
                Some(Item::Frame(packet)) if packet.seq < self.received => {}
                Some(Item::Frame(packet)) => return Poll::Ready(Some(self.accept(packet))),
                Some(Item::End(end)) => return Poll::Ready(self.end(end)),
                None => return Poll::Ready(Some(Err(self.fail_lost("went away before the end")))),
            }
        }
    }

    fn poll_deadline(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<F, RequestError>>> {
        let timer = self
            .timer
            .get_or_insert_with(|| self.clock.sleep(self.clock.remaining(self.deadline)));
        match timer.as_mut().poll(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(()) => {
                self.raw = None;
                Poll::Ready(Some(Err(deadline_passed(self.from))))
            }
        }
    }

    fn accept(&mut self, packet: Packet) -> Result<F, RequestError> {
        if packet.seq != self.received {
            return Err(self.fail_lost(&format!("sent frame {} after {} frames", packet.seq, self.received)));
        }
        self.received += 1;
        packet.body.unpack().map_err(|error| {
            self.raw = None;
            internal(&error)
        })
    }

    fn end(&mut self, end: End) -> Option<Result<F, RequestError>> {
        if end.frames != self.received {
            let found = format!("sent {} frames of which {} arrived", end.frames, self.received);
            return Some(Err(self.fail_lost(&found)));
        }
        self.raw = None;
        end.result.err().map(Err)
    }

    fn fail_lost(&mut self, what: &str) -> RequestError {
        self.raw = None;
        RequestError::new(ErrorKind::Lost, format!("{} {what}", self.from))
    }
}

impl<F: Wire> futures::Stream for Stream<F> {
    type Item = Result<F, RequestError>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll(context)
    }
}

impl<F> fmt::Debug for Stream<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({} frames from {})", self.received, self.from)
    }
}
