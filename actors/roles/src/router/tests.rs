use std::{sync::Arc, time::Duration};

use cluster_messages::{Epoch, Header, RequestId, Role, TraceContext};

use super::*;
use crate::{RestartPolicy, Supervisor, fixture::host};

const ROUTER: ActorPath = ActorPath::new(Role::Router, 0);
const DECODE: InstanceRef = InstanceRef {
    path: ActorPath::new(Role::Decode, 0),
    epoch: Epoch(1),
};

/// Registers a decode instance with room for one request.
async fn register_decode(host: &Host) -> Registered {
    let mut registration = host.registration(DECODE);
    registration.folds = vec![Role::Prefill];
    registration.capacity.requests = 1;
    registration.capacity.context = 100;
    host.register(registration).await.unwrap()
}

async fn start_router(host: &Host) -> Supervisor {
    let supervisor = Supervisor::start(host.clone(), RestartPolicy::default()).await.unwrap();
    supervisor.take(Arc::new(RouterSpec {
        path: ROUTER,
        policy: Policy::kv_aware(),
    }));
    host.peers
        .wait_for(|view| view.keys().any(|instance| instance.path == ROUTER))
        .await;
    supervisor
}

fn route() -> Route {
    Route {
        media: Vec::new(),
        header: Header {
            request: RequestId(1),
            deadline: Deadline(u64::MAX),
            trace: TraceContext::default(),
        },
        blocks: Vec::new(),
        prompt_tokens: 1,
        exclude: Vec::new(),
    }
}

/// A place that was given back is free when the router has taken the message.
async fn routes_again(host: &Host) {
    let again = async {
        while host.peers.route(route()).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(5), again)
        .await
        .expect("the place was given back");
}

#[tokio::test(start_paused = true)]
async fn a_router_knows_who_is_there_before_it_can_be_found() {
    let host = host().await;
    let _decode = register_decode(&host).await;
    let _supervisor = start_router(&host).await;
    let (decision, _routed) = host.peers.route(route()).await.unwrap();
    assert_eq!(decision.decode, DECODE);
}

#[tokio::test(start_paused = true)]
async fn a_place_is_taken_until_its_routing_is_dropped() {
    let host = host().await;
    let _decode = register_decode(&host).await;
    let _supervisor = start_router(&host).await;
    let (_, routed) = host.peers.route(route()).await.unwrap();
    assert!(host.peers.route(route()).await.is_err(), "the only place is taken");
    drop(routed);
    routes_again(&host).await;
}

#[tokio::test(start_paused = true)]
async fn an_asker_that_leaves_before_the_answer_gives_its_place_back() {
    let host = host().await;
    let _decode = register_decode(&host).await;
    let _supervisor = start_router(&host).await;
    {
        let mut asking = std::pin::pin!(host.peers.route(route()));
        let polled = futures::poll!(asking.as_mut());
        assert!(
            polled.is_pending(),
            "the question is in the mailbox, the answer is not there"
        );
    }
    routes_again(&host).await;
}
