//! The suite of request streams.

mod admission;
mod frames;
mod lives;

use std::{sync::Arc, time::Duration};

use cluster_messages::{ActorPath, Deadline, Epoch, Header, InstanceRef, RequestError, RequestId, Role, TraceContext};
use serde::{Deserialize, Serialize};

use super::soon;
use crate::{
    Clock,
    streams::{Incoming, Request, Stream, StreamProtocol, Streams},
};

/// Two members of one world.
pub struct StreamMembers {
    /// The clock both read.
    pub clock: Arc<dyn Clock>,
    /// Where the checks serve.
    pub serving: Streams,
    /// Where they ask.
    pub asking: Streams,
}

/// Runs all checks of request streams. `make` gives two members of a fresh world.
pub async fn streams(make: impl AsyncFn() -> StreamMembers) {
    frames::all_arrive_in_order_then_the_end(make().await).await;
    frames::an_error_is_the_last_item(make().await).await;
    frames::a_dropped_sink_is_a_lost_request(make().await).await;
    frames::a_panic_is_a_lost_request(make().await).await;
    frames::a_slow_reader_holds_the_sender_back(make().await).await;
    frames::a_stopped_stream_can_be_read_to_its_end(make().await).await;
    frames::a_dropped_stream_stops_its_sender(make().await).await;
    frames::a_silent_instance_is_left_at_the_deadline(make().await).await;
    frames::a_reader_that_does_not_read_is_left_at_the_deadline(make().await).await;
    frames::many_streams_do_not_mix(make().await).await;
    admission::a_request_arrives_as_it_was_sent(make().await).await;
    admission::a_refusal_tells_everything(make().await).await;
    admission::an_undecided_request_is_lost(make().await).await;
    admission::a_full_queue_is_overloaded(make().await).await;
    admission::a_request_that_was_taken_back_is_not_shown(make().await).await;
    admission::an_abandoned_decision_is_noticed(make().await).await;
    admission::nobody_waits_past_the_deadline(make().await).await;
    lives::unknown_instances_are_unavailable(make().await).await;
    lives::other_epochs_are_refused(make().await).await;
    lives::a_later_life_replaces_the_one_before(make().await).await;
    lives::protocols_of_an_instance_are_separate(make().await).await;
    lives::closing_lets_in_nobody_new(make().await).await;
    lives::the_end_of_a_service_is_noticed(make().await).await;
}

/// What the checks ask for.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Ask {
    count: u64,
    text: String,
    nested: Vec<Option<(u32, f32)>>,
}

/// What they are answered.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
enum Answer {
    Number(u64),
    Text { text: String },
}

/// The protocol of the checks.
struct Numbers;

impl StreamProtocol for Numbers {
    const NAME: &'static str = "conformance.numbers";
    type Open = Ask;
    type Frame = Answer;
}

/// Another one, with other types.
struct Words;

impl StreamProtocol for Words {
    const NAME: &'static str = "conformance.words";
    type Open = String;
    type Frame = String;
}

fn instance(epoch: u64) -> InstanceRef {
    InstanceRef {
        path: ActorPath::new(Role::Decode, 4),
        epoch: Epoch(epoch),
    }
}

fn ask(count: u64) -> Ask {
    Ask {
        count,
        text: "grüße".into(),
        nested: vec![None, Some((7, -0.5))],
    }
}

impl StreamMembers {
    fn serve(&self, epoch: u64, queue: usize) -> Incoming<Numbers> {
        let serving = self.serving.serve(instance(epoch), queue);
        serving.expect("nobody else serves")
    }

    fn deadline(&self, ahead: Duration) -> Deadline {
        self.clock.deadline_in(ahead)
    }

    fn header(&self, request: u128, ahead: Duration) -> Header {
        Header {
            request: RequestId(request),
            deadline: self.deadline(ahead),
            trace: TraceContext {
                traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into(),
            },
        }
    }

    /// Asks for `count` numbers within a minute.
    async fn open(&self, epoch: u64, count: u64) -> Result<Stream<Answer>, RequestError> {
        let header = self.header(1, Duration::from_secs(60));
        self.asking.open::<Numbers>(instance(epoch), header, ask(count)).await
    }

    /// An accepted stream: the reader's end, and what `respond` made of the request.
    async fn connect<T>(
        &self,
        incoming: &mut Incoming<Numbers>,
        ahead: Duration,
        respond: impl FnOnce(Request<Numbers>) -> T,
    ) -> (Stream<Answer>, T) {
        let header = self.header(1, ahead);
        let opening = self.asking.open::<Numbers>(instance(1), header, ask(0));
        let responding = async { respond(next_request(incoming).await) };
        let (opened, responded) = soon(async { tokio::join!(opening, responding) }).await;
        (opened.expect("the request was accepted"), responded)
    }
}

async fn next_request<P: StreamProtocol>(incoming: &mut Incoming<P>) -> Request<P> {
    soon(incoming.next()).await.expect("the service goes on")
}

async fn next(stream: &mut Stream<Answer>) -> Option<Result<Answer, RequestError>> {
    soon(stream.next()).await
}

/// The error that ends `stream`, after which there is nothing.
async fn last_error(stream: &mut Stream<Answer>) -> RequestError {
    let item = next(stream).await;
    let error = item.expect("an error, not an end").expect_err("an error, not a frame");
    assert!(stream.has_ended());
    assert_eq!(next(stream).await, None, "a stream ends once");
    error
}
