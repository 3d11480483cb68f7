//! Export to a collector, in a process of its own: a process has one subscriber.

use cluster_telemetry::{
    Settings, init,
    names::{attributes, spans},
};
use opentelemetry_proto::tonic::{
    collector::trace::v1::{
        ExportTraceServiceRequest, ExportTraceServiceResponse,
        trace_service_server::{TraceService, TraceServiceServer},
    },
    common::v1::any_value::Value,
};
use tokio::{net::TcpListener, sync::mpsc};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status, transport::Server};

/// A collector that passes on what it is sent.
struct Collector(mpsc::UnboundedSender<ExportTraceServiceRequest>);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let sent = self.0.send(request.into_inner());
        sent.map_err(|_| Status::unavailable("the test is over"))?;
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spans_reach_the_collector_and_the_store_alike() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let (sent, mut received) = mpsc::unbounded_channel();
    let collector = Server::builder().add_service(TraceServiceServer::new(Collector(sent)));
    let serving = tokio::spawn(collector.serve_with_incoming(TcpListenerStream::new(listener)));

    let telemetry = init(Settings {
        service: "cluster-node-a".into(),
        filter: "warn".into(),
        otlp_endpoint: Some(endpoint),
        ..Settings::default()
    })
    .unwrap();
    // Only spans of the cluster's own crates are kept, whoever is asked.
    let ours =
        tracing::info_span!(target: "cluster_gateway", spans::GATEWAY_REQUEST, { attributes::REQUEST_ID } = "aa");
    drop(ours);
    drop(tracing::info_span!(target: "h2", "frame"));
    tokio::task::block_in_place(|| telemetry.flush());

    let export = received.recv().await.unwrap();
    let [resource] = &export.resource_spans[..] else {
        panic!("one resource in {export:?}")
    };
    let service = &resource.resource.as_ref().unwrap().attributes[0];
    assert_eq!(service.key, "service.name");
    let name = service.value.as_ref().and_then(|value| value.value.clone());
    assert_eq!(name, Some(Value::StringValue("cluster-node-a".into())));
    let exported: Vec<_> = resource.scope_spans.iter().flat_map(|scope| &scope.spans).collect();
    assert_eq!(exported.len(), 1);
    assert_eq!(exported[0].name, spans::GATEWAY_REQUEST);
    let stored = telemetry.traces().by_request("aa");
    let trace_id: String = exported[0].trace_id.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(stored[0].trace_id, trace_id);
    serving.abort();
}
