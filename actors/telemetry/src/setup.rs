//! Set-up: one subscriber per process, with logs to stderr and spans to the store and, by setting, to an OTLP collector.
//!
//! Tests start several nodes in one process. The first `init` of a process installs the subscriber; later ones share it
//! and its store, whatever their settings say.

use std::{
    io::{self, IsTerminal},
    str::FromStr,
    sync::OnceLock,
};

use opentelemetry::{KeyValue, trace::TracerProvider};
use opentelemetry_otlp::WithExportConfig;
use opentelemetry_sdk::{
    Resource,
    trace::{Sampler, SdkTracer, SdkTracerProvider},
};
use tracing::{Metadata, Subscriber};
use tracing_subscriber::{
    EnvFilter, Layer, filter, layer::SubscriberExt, registry::LookupSpan, util::SubscriberInitExt,
};

use crate::{TraceStore, names::targets};

/// How log lines look.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

impl FromStr for LogFormat {
    type Err = SetupError;

    fn from_str(text: &str) -> Result<Self, SetupError> {
        match text {
            "text" => Ok(LogFormat::Text),
            "json" => Ok(LogFormat::Json),
            other => Err(SetupError::Format(other.to_owned())),
        }
    }
}

/// What a process says about itself, and where to.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The name of this process in traces: `cluster`, `cluster-node-a`.
    pub service: String,
    /// How log lines look.
    pub log: LogFormat,
    /// Which log lines are written, in the form `info,cluster_gateway=debug`. Moments of single requests are none,
    /// unless `cluster_moment=info` asks for them.
    pub filter: String,
    /// The gRPC address of an OTLP collector, such as `http://127.0.0.1:4317`. Needs a multi-threaded tokio runtime
    /// around `init`.
    pub otlp_endpoint: Option<String>,
    /// How many traces the store keeps.
    pub traces_max: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            service: "cluster".into(),
            log: LogFormat::Text,
            filter: "info".into(),
            otlp_endpoint: None,
            traces_max: 1000,
        }
    }
}

/// Why set-up failed.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The filter does not parse.
    #[error("log filter '{filter}' is not a list such as info,cluster_gateway=debug: {reason}")]
    Filter {
        /// As given.
        filter: String,
        /// What the parser says.
        reason: String,
    },
    /// The format has no such name.
    #[error("log format '{0}' is neither text nor json")]
    Format(String),
    /// The exporter could not be built.
    #[error("OTLP endpoint '{endpoint}' cannot be used: {reason}")]
    Endpoint {
        /// As given.
        endpoint: String,
        /// What the exporter says.
        reason: String,
    },
}

/// The process's telemetry. Dropping it sends what is still to be sent; spans that end later are stored, and exported
/// with the next batch.
#[derive(Debug)]
pub struct Telemetry {
    installed: &'static Installed,
}

#[derive(Debug)]
struct Installed {
    store: TraceStore,
    provider: SdkTracerProvider,
    tracer: SdkTracer,
}

static INSTALLED: OnceLock<Installed> = OnceLock::new();

impl Telemetry {
    /// The traces of this process.
    pub fn traces(&self) -> &TraceStore {
        &self.installed.store
    }

    /// Sends what is still to be sent. Blocks until the collector answered or its time is up; call it after the last
    /// request ended, and not from the only thread of a runtime.
    pub fn flush(&self) {
        if let Err(error) = self.installed.provider.force_flush() {
            tracing::warn!(%error, "spans were not exported");
        }
    }
}

impl Drop for Telemetry {
    fn drop(&mut self) {
        self.flush();
    }
}

/// Sets the process's telemetry up, or joins what is set up already.
pub fn init(settings: Settings) -> Result<Telemetry, SetupError> {
    if let Some(installed) = INSTALLED.get() {
        return Ok(Telemetry { installed });
    }
    let filter = parse_filter(&settings.filter)?;
    let store = TraceStore::new(&settings.service, settings.traces_max);
    let provider = provider(&settings, store.clone())?;
    let tracer = provider.tracer("cluster");
    let candidate = Installed {
        store,
        provider,
        tracer,
    };
    // Who loses the race to be first waits here until the subscriber is in place.
    let installed = INSTALLED.get_or_init(|| {
        install(&candidate, settings.log, filter);
        candidate
    });
    Ok(Telemetry { installed })
}

/// Telemetry for tests: warnings on stderr, a store that is large enough for a test binary.
pub fn init_for_tests() -> Telemetry {
    init(Settings {
        service: "test".into(),
        filter: "warn".into(),
        traces_max: 10_000,
        ..Settings::default()
    })
    .expect("these settings are valid and need no collector")
}

fn install(installed: &Installed, log: LogFormat, filter: EnvFilter) {
    let spans = tracing_opentelemetry::layer()
        .with_tracer(installed.tracer.clone())
        .with_location(false)
        .with_threads(false)
        .with_target(false)
        .with_level(false)
        .with_tracked_inactivity(false)
        .with_context_activation(false)
        .with_filter(filter::filter_fn(is_ours));
    let logs = log_layer(log).with_filter(filter);
    let subscriber = tracing_subscriber::registry().with(spans).with(logs);
    // A test harness may have installed a subscriber of its own; then logs and spans are its business.
    if let Err(error) = subscriber.try_init() {
        tracing::debug!(%error, "another subscriber is in place");
    }
}

fn log_layer<S>(log: LogFormat) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let layer = tracing_subscriber::fmt::layer()
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal());
    match log {
        LogFormat::Text => layer.boxed(),
        LogFormat::Json => layer.json().flatten_event(true).with_span_list(false).boxed(),
    }
}

/// Spans of the libraries beneath (HTTP/2 frames, gRPC calls) would bury a request's own.
fn is_ours(metadata: &Metadata<'_>) -> bool {
    *metadata.level() <= tracing::Level::INFO && metadata.target().starts_with("cluster")
}

fn parse_filter(filter: &str) -> Result<EnvFilter, SetupError> {
    // Of two directives for one target the later one holds.
    let whole = format!("{}=off,{filter}", targets::MOMENT);
    EnvFilter::builder().parse(whole).map_err(|error| SetupError::Filter {
        filter: filter.to_owned(),
        reason: error.to_string(),
    })
}

/// Every trace is sampled: a trace that is looked up after the fact cannot be chosen beforehand.
fn provider(settings: &Settings, store: TraceStore) -> Result<SdkTracerProvider, SetupError> {
    let resource = Resource::builder_empty()
        .with_attribute(KeyValue::new("service.name", settings.service.clone()))
        .build();
    let builder = SdkTracerProvider::builder()
        .with_resource(resource)
        .with_sampler(Sampler::AlwaysOn)
        .with_span_processor(store);
    Ok(match &settings.otlp_endpoint {
        None => builder.build(),
        Some(endpoint) => builder.with_batch_exporter(exporter(endpoint)?).build(),
    })
}

fn exporter(endpoint: &str) -> Result<opentelemetry_otlp::SpanExporter, SetupError> {
    opentelemetry_otlp::SpanExporter::builder()
        .with_tonic()
        .with_endpoint(endpoint)
        .build()
        .map_err(|error| SetupError::Endpoint {
            endpoint: endpoint.to_owned(),
            reason: error.to_string(),
        })
}

#[cfg(test)]
mod tests;
