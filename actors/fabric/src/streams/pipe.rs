//! The channel behind one accepted stream: a bounded queue of packets and a slot for the end.
//!
//! The end does not wait in the queue: it lies in a slot that is filled before the queue closes. So finishing never
//! waits for a slow reader, and a sender that disappears leaves the slot empty, which the reader sees.

use std::{
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll, ready},
};

use futures::Stream;
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::carrier::{End, Form, Item, Packet, RawStream, StopSignal};

/// The sending end.
pub struct RawSink {
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
pub fn pipe(capacity: usize, form: Form, link: Option<CancellationToken>) -> (RawSink, RawStream) {
    let (sender, receiver) = mpsc::channel(capacity.max(1));
    let stop = link
        .as_ref()
        .map_or_else(CancellationToken::new, CancellationToken::child_token);
    let end = Arc::new(OnceLock::new());
    let source = Source {
        packets: receiver,
        end: Some(end.clone()),
        broken: link.map(|link| Box::pin(link.cancelled_owned())),
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
    broken: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
}

impl Stream for Source {
    type Item = Item;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Item>> {
        if let Some(broken) = &mut self.broken
            && broken.as_mut().poll(context).is_ready()
        {
            self.packets.close();
            return Poll::Ready(None);
        }
        let next = ready!(self.packets.poll_recv(context));
        let item = match next {
            Some(packet) => Some(Item::Frame(packet)),
            None => self.end.take().and_then(|end| end.get().cloned()).map(Item::End),
        };
        Poll::Ready(item)
    }
}
