//! What the typed face makes of carriers that misbehave; those that behave are covered by the conformance suite.

use std::time::Duration;

use async_trait::async_trait;
use cluster_messages::{ActorPath, Deadline, Epoch, RequestId, Role, TraceContext};
use proptest::prelude::*;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::SystemClock;

struct Count;

impl StreamProtocol for Count {
    const NAME: &'static str = "count";
    type Open = ();
    type Frame = u64;
}

/// Accepts everything and delivers these items.
struct Canned(std::sync::Mutex<Vec<Item>>);

#[async_trait]
impl StreamCarrier for Canned {
    fn serve(&self, instance: InstanceRef, protocol: &'static str, _: usize) -> Result<RawIncoming, ServeError> {
        Err(ServeError::Taken { instance, protocol })
    }

    fn form(&self, _: InstanceRef) -> Form {
        Form::Values
    }

    async fn open(&self, _: InstanceRef, _: &'static str, _: Header, _: Parcel) -> Result<RawStream, RequestError> {
        let items = std::mem::take(&mut *self.0.lock().unwrap());
        Ok(RawStream {
            items: Box::pin(futures::stream::iter(items)),
            stop: StopSignal::new(CancellationToken::new()),
        })
    }
}

fn frame(seq: u64) -> Item {
    Item::Frame(Form::Values.number(seq, seq))
}

fn end(frames: u64) -> Item {
    Item::End(End { frames, result: Ok(()) })
}

fn header() -> Header {
    Header {
        request: RequestId(1),
        deadline: Deadline(1_000),
        trace: TraceContext::default(),
    }
}

fn decode() -> InstanceRef {
    InstanceRef {
        path: ActorPath::new(Role::Decode, 0),
        epoch: Epoch(1),
    }
}

/// Everything the reader gets from `items`.
async fn read(items: Vec<Item>) -> Vec<Result<u64, RequestError>> {
    let clock = Arc::new(SystemClock::starting_at(0));
    let streams = Streams::new(Arc::new(Canned(items.into())), clock);
    let mut stream = streams.open::<Count>(decode(), header(), ()).await.unwrap();
    let mut read = Vec::new();
    while let Some(item) = tokio::time::timeout(Duration::from_secs(9), stream.next())
        .await
        .unwrap()
    {
        read.push(item);
    }
    assert!(stream.has_ended());
    read
}

/// The frames that arrived, and the kind of the error at the end.
async fn outcome(items: Vec<Item>) -> (Vec<u64>, Option<ErrorKind>) {
    let mut read = read(items).await;
    let last = read.pop_if(|last| last.is_err());
    let frames = read
        .into_iter()
        .map(|frame| frame.expect("only the last item is an error"));
    (frames.collect(), last.map(|last| last.unwrap_err().kind))
}

#[tokio::test(start_paused = true)]
async fn gaps_and_missing_ends_are_losses() {
    let lost = Some(ErrorKind::Lost);
    assert_eq!(outcome(vec![frame(0), frame(1), end(2)]).await, (vec![0, 1], None));
    assert_eq!(
        outcome(vec![frame(0), frame(2), end(3)]).await,
        (vec![0], lost),
        "a gap"
    );
    assert_eq!(
        outcome(vec![frame(1), frame(0), end(2)]).await,
        (vec![], lost),
        "out of order"
    );
    assert_eq!(
        outcome(vec![frame(0), end(2)]).await,
        (vec![0], lost),
        "lost just before the end"
    );
    assert_eq!(outcome(vec![frame(0), frame(1)]).await, (vec![0, 1], lost), "no end");
    assert_eq!(outcome(vec![]).await, (vec![], lost));
    assert_eq!(
        outcome(vec![frame(0), frame(0), frame(1), end(2)]).await,
        (vec![0, 1], None),
        "a repeat"
    );
}

#[tokio::test(start_paused = true)]
async fn a_frame_of_another_type_is_a_defect() {
    let wrong = Item::Frame(Form::Values.number(0, "text".to_owned()));
    assert_eq!(outcome(vec![wrong, end(1)]).await, (vec![], Some(ErrorKind::Internal)));
    let garbage = Item::Frame(Packet {
        seq: 0,
        body: Parcel::Bytes(vec![0xff; 3].into()),
    });
    assert_eq!(
        outcome(vec![garbage, end(1)]).await,
        (vec![], Some(ErrorKind::Internal))
    );
    let trailing = Item::Frame(Packet {
        seq: 0,
        body: Parcel::Bytes(vec![7, 7].into()),
    });
    assert_eq!(
        outcome(vec![trailing, end(1)]).await,
        (vec![], Some(ErrorKind::Internal)),
        "bytes left over"
    );
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_after_the_deadline() {
    let late = Arc::new(SystemClock::starting_at(1_000));
    let streams = Streams::new(Arc::new(Canned(vec![end(0)].into())), late);
    let refused = streams.open::<Count>(decode(), header(), ()).await.unwrap_err();
    assert_eq!(
        refused.kind,
        ErrorKind::Deadline,
        "although the carrier would accept at once"
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waited_too_long_is_refused_unseen() {
    let (offers, queue) = tokio::sync::mpsc::channel(4);
    let raw = RawIncoming {
        offers: queue,
        registration: Box::new(()),
    };
    let mut incoming = Incoming::<Count>::new(raw, Arc::new(SystemClock::starting_at(1_000)));
    let (answer, decided) = tokio::sync::oneshot::channel();
    // An asker elsewhere that has not told yet that it gave up.
    let offer = Offer {
        header: header(),
        open: Form::Values.pack(()),
        decision: Decision {
            form: Form::Values,
            link: None,
            answer,
        },
    };
    offers.try_send(offer).map_err(|_| "full").unwrap();
    drop(offers);
    assert!(incoming.next().await.is_none());
    assert_eq!(
        decided.await.unwrap().err().map(|error| error.kind),
        Some(ErrorKind::Deadline)
    );
}

proptest! {
    /// Whatever a carrier delivers, the reader gets a gap-free prefix, and a clean end only for everything that was sent.
    #[test]
    fn a_clean_end_means_that_nothing_is_missing(seqs in prop::collection::vec(0u64..5, 0..8), sent in 0u64..6, ends: bool) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let mut items: Vec<_> = seqs.into_iter().map(frame).collect();
        if ends {
            items.push(end(sent));
        }
        let (frames, error) = runtime.block_on(outcome(items));
        prop_assert!(frames.iter().copied().eq(0..frames.len() as u64));
        if error.is_none() {
            prop_assert!(ends && frames.len() as u64 == sent);
        }
    }
}
