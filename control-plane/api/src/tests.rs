use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use tokio::{net::TcpListener, sync::oneshot, task::JoinHandle};
use tonic::transport::Endpoint;

use crate::{
    Blocks, Client, ControlPlane, Drain, Event, Fault, FaultKind, Instance, InstanceState, PlanView, Status, serve,
};

/// Answers with fixed values, each field another.
struct Fixed;

fn instance(state: InstanceState) -> Instance {
    Instance {
        role: "decode".into(),
        path: "decode.3".into(),
        node: "local".into(),
        state,
        epoch: 1,
        restarts: 2,
        pid: 3,
        steps: 4,
        running: 5,
        waiting: 6,
        blocks: Some(Blocks {
            used: 7,
            cached: 8,
            total: 9,
        }),
        last_exit: Some("panicked".into()),
    }
}

fn status() -> Status {
    let states = [
        InstanceState::Starting,
        InstanceState::Ready,
        InstanceState::Draining,
        InstanceState::Restarting,
        InstanceState::Stopped,
        InstanceState::Failed,
    ];
    let bare = Instance {
        blocks: None,
        last_exit: None,
        ..instance(InstanceState::Ready)
    };
    Status {
        name: "local".into(),
        models: vec!["tiny".into(), "alias".into()],
        endpoint: "http://127.0.0.1:8000".into(),
        uptime_ms: 10,
        generation: 11,
        ready: true,
        instances: states.into_iter().map(instance).chain([bare]).collect(),
        stand_ins: vec!["8 x b300: 8 ranks".into()],
    }
}

fn event(sequence: u64) -> Event {
    Event {
        sequence,
        at_unix_ms: 12,
        kind: "instance.restarted".into(),
        subject: "decode.3".into(),
        message: "after a panic".into(),
    }
}

#[async_trait]
impl ControlPlane for Fixed {
    async fn status(&self) -> Result<Status, Fault> {
        Ok(status())
    }

    async fn plan(&self) -> Result<PlanView, Fault> {
        Err(Fault::new(FaultKind::Unavailable, "no plan yet", ""))
    }

    async fn trace(&self, request_id: &str) -> Result<String, Fault> {
        match request_id {
            "1" => Ok("[]".into()),
            other => Err(Fault::new(
                FaultKind::NotFound,
                format!("request {other} is not in the store — ü"),
                "ask for a newer one",
            )),
        }
    }

    async fn events(&self, after_sequence: u64) -> Result<Vec<Event>, Fault> {
        Ok(vec![event(after_sequence + 1), event(after_sequence + 2)])
    }

    async fn shutdown(&self, grace: Option<Duration>) -> Result<Drain, Fault> {
        Ok(Drain {
            in_flight: 13,
            grace_s: grace.map_or(14, |grace| u32::try_from(grace.as_secs()).unwrap()),
        })
    }
}

struct Running {
    address: String,
    stop: oneshot::Sender<()>,
    server: JoinHandle<()>,
}

async fn start() -> Running {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (stop, stopped) = oneshot::channel();
    let server = tokio::spawn(async move {
        let stopped = async { drop(stopped.await) };
        serve(listener, Arc::new(Fixed), stopped).await.unwrap();
    });
    Running { address, stop, server }
}

#[tokio::test]
async fn answers_arrive_as_they_were_given() {
    let running = start().await;
    let mut client = Client::connect(&running.address).await.unwrap();
    assert_eq!(client.status().await.unwrap(), status());
    assert_eq!(client.trace("1").await.unwrap(), "[]");
    assert_eq!(client.events(20).await.unwrap(), [event(21), event(22)]);
    for (asked, grace_s) in [(Some(30), 30), (Some(0), 0), (None, 14)] {
        let drain = client.shutdown(asked).await.unwrap();
        assert_eq!(drain, Drain { in_flight: 13, grace_s });
    }
    drop(client);
    running.stop.send(()).unwrap();
    running.server.await.unwrap();
}

#[tokio::test]
async fn faults_arrive_with_kind_reason_and_remedy() {
    let running = start().await;
    let mut client = Client::connect(&running.address).await.unwrap();
    let expected = Fault::new(
        FaultKind::NotFound,
        "request 2 is not in the store — ü",
        "ask for a newer one",
    );
    assert_eq!(client.trace("2").await.unwrap_err(), expected);
    let expected = Fault::new(FaultKind::Unavailable, "no plan yet", "");
    assert_eq!(client.plan().await.unwrap_err(), expected);
}

#[test]
fn every_kind_survives_the_wire() {
    for kind in [
        FaultKind::Invalid,
        FaultKind::NotFound,
        FaultKind::Unavailable,
        FaultKind::Unsupported,
        FaultKind::Internal,
    ] {
        let fault = Fault::new(kind, "reason", "remedy");
        assert_eq!(Fault::from(tonic::Status::from(fault.clone())), fault);
    }
}

#[tokio::test]
async fn an_address_without_a_cluster_is_named() {
    // Bound and closed again: nobody listens there.
    let address = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap()
        .to_string();
    let fault = Client::connect(&address).await.unwrap_err();
    assert_eq!(fault.kind, FaultKind::Unavailable);
    assert_eq!(fault.reason, format!("nothing answers at {address}"));

    let fault = Client::connect("not an address").await.unwrap_err();
    assert_eq!(fault.kind, FaultKind::Invalid);
}

#[tokio::test]
async fn health_and_reflection_are_served() {
    use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
    use tonic_reflection::pb::v1::{
        ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
        server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
    };

    let running = start().await;
    let endpoint = Endpoint::from_shared(format!("http://{}", running.address)).unwrap();
    let channel = endpoint.connect().await.unwrap();
    let mut health = HealthClient::new(channel.clone());
    let service = "cluster.v1.ControlPlane".to_owned();
    let request = HealthCheckRequest {
        service: service.clone(),
    };
    assert_eq!(health.check(request).await.unwrap().into_inner().status, 1);

    let mut reflection = ServerReflectionClient::new(channel);
    let request = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let answers = reflection
        .server_reflection_info(tokio_stream::once(request))
        .await
        .unwrap();
    let answer = answers.into_inner().message().await.unwrap().unwrap();
    match answer.message_response {
        Some(MessageResponse::ListServicesResponse(list)) => {
            assert!(list.service.iter().any(|listed| listed.name == service));
        }
        other => panic!("{other:?}"),
    }
}
