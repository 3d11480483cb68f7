use std::time::Duration;

use cluster_fabric::{Clock, Entropy, Fabric, MemoryFabric, SystemClock};
use cluster_messages::{
    ActorPath, Deadline, Epoch, Header, NodeId, RequestId, Role, TextInput, TextRequest, ToolChoice, TraceContext,
};
use tokio::sync::oneshot;

use super::*;
use crate::protocol::TextProtocol;

const INSTANCE: InstanceRef = InstanceRef {
    path: ActorPath::new(Role::Tokenizer, 0),
    epoch: Epoch(1),
};

fn fabric() -> Fabric {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::starting_at(0));
    MemoryFabric::new(clock, Entropy::from_seed(1)).node(NodeId("n".into()))
}

fn request() -> TextRequest {
    TextRequest {
        tool_choice: ToolChoice::default(),
        parallel_tool_calls: true,
        header: Header {
            request: RequestId(1),
            deadline: Deadline(u64::MAX),
            trace: TraceContext::default(),
        },
        model: "m".into(),
        input: TextInput::Tokens(vec![1]),
        sampling: cluster_messages::Sampling::default(),
        max_tokens: None,
        min_tokens: 0,
        stop: Vec::new(),
        stop_token_ids: Vec::new(),
        ignore_eos: false,
        choices: 1,
        logprobs: None,
        echo: false,
        cache_salt: String::new(),
        priority: 0,
    }
}

/// A service whose work before acceptance never ends; it says when it has begun, and keeps `_held` while it lasts.
async fn stuck(request: Request<TextProtocol>, begun: Arc<tokio::sync::Notify>) {
    let work = async {
        begun.notify_one();
        std::future::pending::<Result<(), RequestError>>().await
    };
    let admitted = admit(request.respond, 1, work).await;
    assert_eq!(admitted.err().map(|error| error.kind), Some(ErrorKind::Cancelled));
}

#[tokio::test(start_paused = true)]
async fn an_asker_that_leaves_before_the_answer_frees_its_place_at_once() {
    let fabric = fabric();
    let credits = Credits::new(1, 1);
    let begun = Arc::new(tokio::sync::Notify::new());
    let signal = begun.clone();
    let handler = move |request| stuck(request, signal.clone());
    let _service = Service::start::<TextProtocol, _, _>(&fabric.streams, INSTANCE, credits.clone(), handler).unwrap();
    let (leave, left) = oneshot::channel::<()>();
    let asking = async {
        let request = request();
        tokio::select! {
            _ = fabric.streams.open::<TextProtocol>(INSTANCE, request.header.clone(), request) => panic!("no answer is due"),
            _ = left => {}
        }
    };
    let leaving = async {
        begun.notified().await;
        assert_eq!(credits.in_use(), 1);
        leave.send(()).unwrap();
    };
    tokio::join!(asking, leaving);
    let free = async {
        while credits.in_use() > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(1), free)
        .await
        .expect("the place is free");
}
