//! The counters, gauges and histograms of a process, and their text for `/metrics`.
//!
//! Labels are bounded: served models, instances without epochs, outcomes from a fixed list. The path of a token touches
//! handles fetched once per request (`ModelMetrics`), never a map.

use std::sync::Arc;

use prometheus_client::{
    encoding::{EncodeLabelSet, text},
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::{Metric, Registry, Unit},
};

use crate::names::metrics as names;

/// A cheap handle on all metrics of a process.
#[derive(Clone)]
pub struct Metrics {
    families: Arc<Families>,
}

/// The metrics of one served model.
#[derive(Clone, Debug)]
pub struct ModelMetrics {
    /// Tokens of prompts.
    pub prompt_tokens: Counter,
    /// Tokens of answers.
    pub completion_tokens: Counter,
    /// Prompt tokens found in a cache.
    pub cached_tokens: Counter,
    /// In seconds.
    pub time_to_first_token: Histogram,
    /// In seconds.
    pub inter_token: Histogram,
    /// In seconds.
    pub end_to_end: Histogram,
}

/// The metrics of one instance.
#[derive(Clone, Debug)]
pub struct InstanceMetrics {
    /// Requests that run.
    pub running: Gauge,
    /// Requests that wait.
    pub waiting: Gauge,
    /// Prompt tokens still to be computed.
    pub pending_tokens: Gauge,
    /// Blocks held by running requests.
    pub blocks_used: Gauge,
    /// Blocks held by the prefix cache alone.
    pub blocks_cached: Gauge,
    /// Blocks in all.
    pub blocks_total: Gauge,
    /// Prompt tokens looked up in the prefix cache.
    pub prefix_lookup_tokens: Counter,
    /// Of these, found.
    pub prefix_hit_tokens: Counter,
    /// Sequences that lost their pages.
    pub preemptions: Counter,
    /// Engine steps.
    pub steps: Counter,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct ModelLabel {
    model: String,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct InstanceLabel {
    instance: String,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct OutcomeLabels {
    model: String,
    outcome: &'static str,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct RestartLabels {
    actor: String,
    reason: &'static str,
}

type Histograms = Family<ModelLabel, Histogram, fn() -> Histogram>;

struct Families {
    registry: Registry,
    requests: Family<OutcomeLabels, Counter>,
    in_flight: Gauge,
    refused: Family<ReasonLabel, Counter>,
    prompt_tokens: Family<ModelLabel, Counter>,
    completion_tokens: Family<ModelLabel, Counter>,
    cached_tokens: Family<ModelLabel, Counter>,
    time_to_first_token: Histograms,
    inter_token: Histograms,
    end_to_end: Histograms,
    running: Family<InstanceLabel, Gauge>,
    waiting: Family<InstanceLabel, Gauge>,
    pending_tokens: Family<InstanceLabel, Gauge>,
    blocks_used: Family<InstanceLabel, Gauge>,
    blocks_cached: Family<InstanceLabel, Gauge>,
    blocks_total: Family<InstanceLabel, Gauge>,
    prefix_lookup_tokens: Family<InstanceLabel, Counter>,
    prefix_hit_tokens: Family<InstanceLabel, Counter>,
    preemptions: Family<InstanceLabel, Counter>,
    steps: Family<InstanceLabel, Counter>,
    restarts: Family<RestartLabels, Counter>,
    migrations: Counter,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// All metrics, at zero.
    pub fn new() -> Self {
        Self {
            families: Arc::new(Families::new()),
        }
    }

    /// The handles of a served model. Names that clients invent must not come here: every one stays as a label.
    pub fn model(&self, model: &str) -> ModelMetrics {
        let label = ModelLabel {
            model: model.to_owned(),
        };
        let families = &self.families;
        ModelMetrics {
            prompt_tokens: families.prompt_tokens.get_or_create_owned(&label),
            completion_tokens: families.completion_tokens.get_or_create_owned(&label),
            cached_tokens: families.cached_tokens.get_or_create_owned(&label),
            time_to_first_token: families.time_to_first_token.get_or_create_owned(&label),
            inter_token: families.inter_token.get_or_create_owned(&label),
            end_to_end: families.end_to_end.get_or_create_owned(&label),
        }
    }

    /// The handles of an instance: a path without epoch, such as `decode.0`.
    pub fn instance(&self, instance: &str) -> InstanceMetrics {
        let label = InstanceLabel {
            instance: instance.to_owned(),
        };
        let families = &self.families;
        InstanceMetrics {
            running: families.running.get_or_create_owned(&label),
            waiting: families.waiting.get_or_create_owned(&label),
            pending_tokens: families.pending_tokens.get_or_create_owned(&label),
            blocks_used: families.blocks_used.get_or_create_owned(&label),
            blocks_cached: families.blocks_cached.get_or_create_owned(&label),
            blocks_total: families.blocks_total.get_or_create_owned(&label),
            prefix_lookup_tokens: families.prefix_lookup_tokens.get_or_create_owned(&label),
            prefix_hit_tokens: families.prefix_hit_tokens.get_or_create_owned(&label),
            preemptions: families.preemptions.get_or_create_owned(&label),
            steps: families.steps.get_or_create_owned(&label),
        }
    }

    /// Counts an ended request. `outcome` is `ok` or the code of the error.
    pub fn request_ended(&self, model: &str, outcome: &'static str) {
        let model = model.to_owned();
        self.families
            .requests
            .get_or_create(&OutcomeLabels { model, outcome })
            .inc();
    }

    /// Counts a request refused before any work.
    pub fn request_refused(&self, reason: &'static str) {
        self.families.refused.get_or_create(&ReasonLabel { reason }).inc();
    }

    /// Requests between first and last byte.
    pub fn requests_in_flight(&self) -> &Gauge {
        &self.families.in_flight
    }

    /// Counts the restart of an actor: its path, and why.
    pub fn actor_restarted(&self, actor: &str, reason: &'static str) {
        let actor = actor.to_owned();
        self.families
            .restarts
            .get_or_create(&RestartLabels { actor, reason })
            .inc();
    }

    /// Counts a request that went on at another instance.
    pub fn request_migrated(&self) {
        self.families.migrations.inc();
    }

    /// The OpenMetrics text (`application/openmetrics-text; version=1.0.0; charset=utf-8`).
    pub fn encode(&self) -> String {
        let mut page = String::new();
        text::encode(&mut page, &self.families.registry).expect("writing to a String does not fail");
        page
    }
}

impl Families {
    fn new() -> Self {
        let mut page = Page(Registry::default());
        Self {
            requests: page.add(names::REQUESTS, "Ended requests", Family::default()),
            in_flight: page.add(
                names::REQUESTS_IN_FLIGHT,
                "Requests between first and last byte",
                Gauge::default(),
            ),
            refused: page.add(names::REFUSED, "Requests refused before any work", Family::default()),
            prompt_tokens: page.add(names::PROMPT_TOKENS, "Tokens of prompts", Family::default()),
            completion_tokens: page.add(names::COMPLETION_TOKENS, "Tokens of answers", Family::default()),
            cached_tokens: page.add(
                names::CACHED_TOKENS,
                "Prompt tokens found in a cache",
                Family::default(),
            ),
            time_to_first_token: page.add_seconds(
                names::TIME_TO_FIRST_TOKEN,
                "Time to the first text",
                request_seconds,
            ),
            inter_token: page.add_seconds(names::INTER_TOKEN, "Time between tokens", token_seconds),
            end_to_end: page.add_seconds(names::END_TO_END, "Time to the end", request_seconds),
            running: page.add(names::RUNNING, "Requests that run", Family::default()),
            waiting: page.add(names::WAITING, "Requests that wait", Family::default()),
            pending_tokens: page.add(
                names::PENDING_TOKENS,
                "Prompt tokens still to be computed",
                Family::default(),
            ),
            blocks_used: page.add(
                names::BLOCKS_USED,
                "KV blocks held by running requests",
                Family::default(),
            ),
            blocks_cached: page.add(
                names::BLOCKS_CACHED,
                "KV blocks held by the prefix cache alone",
                Family::default(),
            ),
            blocks_total: page.add(names::BLOCKS_TOTAL, "KV blocks in all", Family::default()),
            prefix_lookup_tokens: page.add(
                names::PREFIX_LOOKUP_TOKENS,
                "Prompt tokens looked up",
                Family::default(),
            ),
            prefix_hit_tokens: page.add(names::PREFIX_HIT_TOKENS, "Prompt tokens found", Family::default()),
            preemptions: page.add(names::PREEMPTIONS, "Sequences that lost their pages", Family::default()),
            steps: page.add(names::STEPS, "Engine steps", Family::default()),
            restarts: page.add(names::RESTARTS, "Restarts of actors", Family::default()),
            migrations: page.add(
                names::MIGRATIONS,
                "Requests that went on at another instance",
                Counter::default(),
            ),
            registry: page.0,
        }
    }
}

/// The registry while it is filled.
struct Page(Registry);

impl Page {
    fn add<M: Metric + Clone>(&mut self, name: &str, help: &str, metric: M) -> M {
        self.0.register(name, help, metric.clone());
        metric
    }

    fn add_seconds(&mut self, name: &str, help: &str, new: fn() -> Histogram) -> Histograms {
        let histograms = Histograms::new_with_constructor(new);
        self.0.register_with_unit(name, help, Unit::Seconds, histograms.clone());
        histograms
    }
}

/// 1 ms to about two minutes.
fn request_seconds() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, 18))
}

/// 0.1 ms to about three seconds.
fn token_seconds() -> Histogram {
    Histogram::new(exponential_buckets(0.0001, 2.0, 16))
}

#[cfg(test)]
mod tests;
