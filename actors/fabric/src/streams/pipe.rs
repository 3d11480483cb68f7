//! The channel behind one accepted stream: a bounded queue of packets and a slot for the end.
//!
//! The end does not wait in the queue: it lies in a slot that is filled before the queue closes. So finishing never
//! waits for a slow reader, and a sender that disappears leaves the slot empty, which the reader sees.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll},
};

use futures::Stream;
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::carrier::{End, Form, Item, Packet, RawStream, StopSignal};

/// The sending end.
pub(super) struct RawSink {
    pub(super) packets: mpsc::Sender<Packet>,
    pub(super) form: Form,
    pub(super) stop: CancellationToken,
    end: Arc<OnceLock<End>>,
}

impl RawSink {
    /// Ends the stream.
    pub(super) fn finish(self, end: End) {
        self.end.set(end).expect("finishing takes the only sink of this slot");
    }
}

/// A stream and the sink that feeds it, for `capacity` packets. `link` is raised when the connection between them breaks:
/// the reader then sees the stream end without an `End`.
pub(super) fn pipe(capacity: usize, form: Form, link: Option<CancellationToken>) -> (RawSink, RawStream) {
    let (sender, receiver) = mpsc::channel(capacity.max(1));
    let stop = link
        .as_ref()
        .map_or_else(CancellationToken::new, CancellationToken::child_token);
    let end = Arc::new(OnceLock::new());
    let source = Source {
        packets: receiver,
        end: Some(end.clone()),
        link: link.map(Link::new),
    };
    let stream = RawStream {
        items: Box::pin(source),
        stop: StopSignal::new(stop.clone()),
    };
    let sink = RawSink {
        packets: sender,
        form,
        stop,
        end,
    };
    (sink, stream)
}

struct Source {
    packets: mpsc::Receiver<Packet>,
    /// None once the end was delivered.
    end: Option<Arc<OnceLock<End>>>,
    /// None: both ends share a process.
    link: Option<Link>,
}

/// The connection between the ends.
struct Link {
    token: CancellationToken,
    /// Polled only when there is nothing to read: registering a waker costs more than a frame.
    broken: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl Link {
    fn new(token: CancellationToken) -> Self {
        Self {
            broken: Box::pin(token.clone().cancelled_owned()),
            token,
        }
    }

    fn poll_broken(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.broken.as_mut().poll(context)
    }
}

impl Source {
    /// Ends without an `End`, and lets the sender know.
    fn break_off(&mut self) -> Poll<Option<Item>> {
        self.packets.close();
        Poll::Ready(None)
    }
}

impl Stream for Source {
    type Item = Item;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Item>> {
        if self.link.as_ref().is_some_and(|link| link.token.is_cancelled()) {
            return self.break_off();
        }
        let Poll::Ready(next) = self.packets.poll_recv(context) else {
            let broken = self.link.as_mut().map(|link| link.poll_broken(context));
            return if broken == Some(Poll::Ready(())) {
                self.break_off()
            } else {
                Poll::Pending
            };
        };
        let item = match next {
            Some(packet) => Some(Item::Frame(packet)),
            None => self.end.take().and_then(|end| end.get().cloned()).map(Item::End),
        };
        Poll::Ready(item)
    }
}
