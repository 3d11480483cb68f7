//! The cluster in this process, from start to drained.

use std::{
    io::Write,
    pin::pin,
    process,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use cluster_api::Client;
use cluster_fabric::Entropy;
use cluster_gateway::Drained;
use cluster_node::{End, ModelLocation, Options, Running, StartError, start};
use cluster_telemetry::{Settings, Telemetry};
use cluster_topologies::Resolved;
use tokio::{runtime::Runtime, time::timeout};

use super::{Arguments, banner, signals::Signals};
use crate::{
    environment::Environment,
    failure::Failure,
    runs::{Claim, Run},
    topology_file::TopologyFile,
};

/// What is to be started.
pub(super) struct Start<'a> {
    pub(super) file: &'a TopologyFile,
    pub(super) topology: Resolved,
    pub(super) model: ModelLocation,
    pub(super) claim: Claim,
}

/// What the end of an orderly stop may take beyond the grace for requests.
const MARGIN: Duration = Duration::from_secs(5);

pub(super) fn run(
    what: Start<'_>,
    arguments: &Arguments,
    environment: &Environment,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let runtime = Runtime::new().map_err(|error| Failure::failed(format!("no event loop: {error}")))?;
    let ended = runtime.block_on(serve(what, arguments, environment, out));
    // Whatever still runs has had its time.
    runtime.shutdown_background();
    ended
}

async fn serve(
    what: Start<'_>,
    arguments: &Arguments,
    environment: &Environment,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let mut signals = Signals::listen()?;
    let telemetry = telemetry(arguments, environment)?;
    let grace = Duration::from(what.topology.limits.drain);
    let options = Options {
        topology: what.topology,
        model: what.model,
        port: arguments.port,
        api: arguments.api,
        traces: telemetry.traces().clone(),
        entropy: Entropy::from_system(),
    };
    let starting = async { start(options).await.map_err(|error| start_failure(error, what.file)) };
    let mut running = tokio::select! {
        running = starting => running?,
        () = signals.next() => return Ok(()),
    };
    announce(&running, &what.claim, out).await?;
    let (grace, ended) = tokio::select! {
        () = signals.next() => (grace, Ok(())),
        end = running.wait_for_end() => match end {
            End::Asked(grace) => (grace, Ok(())),
            End::Failed(path) => (grace, Err(Failure::failed(failed_text(&running, path)))),
        },
    };
    stop(running, grace, &mut signals, out).await;
    ended
}

/// Drains within `grace`. The next signal cuts what still runs, the one after that waits for nothing.
async fn stop(running: Running, grace: Duration, signals: &mut Signals, out: &mut dyn Write) {
    tell(out, &format!("stopping: requests in flight have {}s", grace.as_secs()));
    let cut = running.cut();
    let mut stopping = pin!(running.shutdown(grace));
    let drained = tokio::select! {
        drained = timeout(grace + MARGIN, &mut stopping) => drained,
        () = signals.next() => {
            cut.now();
            tokio::select! {
                drained = timeout(MARGIN, &mut stopping) => drained,
                () = signals.next() => return tell(out, "stopped at once"),
            }
        }
    };
    let is_whole = matches!(drained, Ok(Some(Drained::Whole)));
    tell(
        out,
        if is_whole {
            "stopped"
        } else {
            "stopped; some requests were cut off"
        },
    );
}

/// Says how the end goes on. It goes on also when nobody listens any more.
fn tell(out: &mut dyn Write, line: &str) {
    let _nobody_listens = writeln!(out, "{line}").and_then(|()| out.flush());
}

fn telemetry(arguments: &Arguments, environment: &Environment) -> Result<Telemetry, Failure> {
    let settings = Settings {
        log: arguments.log.format(),
        filter: environment.log_filter.clone(),
        otlp_endpoint: environment.otlp_endpoint.clone(),
        ..Settings::default()
    };
    cluster_telemetry::init(settings).map_err(|error| Failure::input(error.to_string()))
}

fn start_failure(error: StartError, file: &TopologyFile) -> Failure {
    match error {
        StartError::Plan(problems) => file.failure(problems),
        other => Failure::failed(other.to_string()),
    }
}

/// Prints what runs, and leaves word for other commands.
async fn announce(running: &Running, claim: &Claim, out: &mut dyn Write) -> Result<(), Failure> {
    let api = running.api().to_string();
    let status = Client::connect(&api).await?.status().await?;
    let run = Run {
        name: status.name.clone(),
        pid: process::id(),
        api,
        endpoint: status.endpoint.clone(),
        started_unix_s: SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs()),
    };
    claim
        .publish(&run)
        .map_err(|error| Failure::failed(format!("cannot leave word of the running cluster: {error}")))?;
    out.write_all(banner::ready(&status).as_bytes())?;
    writeln!(out, "Ctrl-C stops it.")?;
    Ok(out.flush()?)
}

fn failed_text(running: &Running, path: cluster_messages::ActorPath) -> String {
    let instances = running.board().snapshot();
    let last = instances.get(&path).and_then(|instance| instance.last_exit.as_ref());
    let why = last.map_or_else(String::new, |exit| format!(": {exit}"));
    format!("{path} failed more often than the topology's restart policy allows{why}")
}
