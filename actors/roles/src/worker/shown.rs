//! What people see of a worker: the board and the metrics. Counters go on over lives; a life's own figures start at zero.

use cluster_messages::{ActorPath, Role, SamplePoint};
use cluster_telemetry::InstanceMetrics;

use crate::{
    engine_host::EngineReport,
    host::Host,
    status::{Instance, State},
    supervisor::Life,
};

#[cfg(test)]
mod tests;

/// What of one life has been shown.
pub(super) struct Shown {
    metrics: InstanceMetrics,
    last: EngineReport,
}

impl Shown {
    pub(super) fn new(life: &Life) -> Self {
        Self {
            metrics: life.host.metrics.instance(&life.instance.path.to_string()),
            last: EngineReport::default(),
        }
    }

    pub(super) fn show(&mut self, life: &Life, report: EngineReport) {
        self.count(report);
        // A life that has just ended must not be shown as busy by its last report.
        let shows = |instance: &Instance| {
            matches!(instance.state, State::Starting | State::Ready) && instance.epoch <= life.instance.epoch
        };
        let mut is_shown = false;
        life.host.board.update(life.instance.path, |instance| {
            is_shown = shows(instance);
            if is_shown {
                instance.load = report.load;
            }
        });
        if is_shown {
            set_gauges(&self.metrics, report.load);
        }
    }

    /// Adds what was done since the last report.
    fn count(&mut self, report: EngineReport) {
        let (metrics, last) = (&self.metrics, self.last);
        metrics.steps.inc_by(report.load.steps - last.load.steps);
        metrics
            .prefix_lookup_tokens
            .inc_by(report.lookup_tokens - last.lookup_tokens);
        metrics.prefix_hit_tokens.inc_by(report.hit_tokens - last.hit_tokens);
        metrics.preemptions.inc_by(report.preemptions - last.preemptions);
        self.last = report;
    }
}

/// A dead worker runs nothing and holds nothing.
pub(crate) fn show_nothing(host: &Host, path: ActorPath) {
    if matches!(path.role, Role::Encoder | Role::Prefill | Role::Decode) {
        set_gauges(&host.metrics.instance(&path.to_string()), SamplePoint::default());
    }
    host.board
        .update(path, |instance| instance.load = SamplePoint::default());
}

fn set_gauges(metrics: &InstanceMetrics, load: SamplePoint) {
    metrics.running.set(load.running.into());
    metrics.waiting.set(load.waiting.into());
    metrics.pending_tokens.set(load.pending_tokens.into());
    metrics.blocks_used.set(load.blocks_used.into());
    metrics.blocks_cached.set(load.blocks_cached.into());
    metrics.blocks_total.set(load.blocks_total.into());
}
