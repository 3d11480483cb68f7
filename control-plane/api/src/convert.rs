//! Between the wire types and ours, field by field.

use crate::{Blocks, Drain, Event, Instance, InstanceState, PlanView, Status, wire};

/// The states on both sides. What a newer server may add reads as `Starting`: not yet known to serve.
const STATES: [(InstanceState, wire::InstanceState); 6] = [
    (InstanceState::Starting, wire::InstanceState::Starting),
    (InstanceState::Ready, wire::InstanceState::Ready),
    (InstanceState::Draining, wire::InstanceState::Draining),
    (InstanceState::Restarting, wire::InstanceState::Restarting),
    (InstanceState::Stopped, wire::InstanceState::Stopped),
    (InstanceState::Failed, wire::InstanceState::Failed),
];

fn state_to_wire(state: InstanceState) -> wire::InstanceState {
    let row = STATES.iter().find(|(ours, _)| *ours == state);
    row.map_or(wire::InstanceState::Unspecified, |(_, theirs)| *theirs)
}

fn state_from_wire(state: wire::InstanceState) -> InstanceState {
    let row = STATES.iter().find(|(_, theirs)| *theirs == state);
    row.map_or_else(InstanceState::default, |(ours, _)| *ours)
}

/// Writes the two conversions of a pair of types whose fields have equal names and types.
macro_rules! same_fields {
    ($($ours:ident = $theirs:ident { $($field:ident),* })*) => { $(
        impl From<$ours> for wire::$theirs {
            fn from($ours { $($field),* }: $ours) -> Self {
                Self { $($field),* }
            }
        }
        impl From<wire::$theirs> for $ours {
            fn from(wire::$theirs { $($field),* }: wire::$theirs) -> Self {
                Self { $($field),* }
            }
        }
    )* };
}

same_fields! {
    Blocks = Blocks { used, cached, total }
    PlanView = GetPlanResponse { generation, text, json }
    Event = Event { sequence, at_unix_ms, kind, subject, message }
    Drain = ShutdownResponse { in_flight, grace_s }
}

impl From<Status> for wire::GetStatusResponse {
    fn from(status: Status) -> Self {
        Self {
            name: status.name,
            models: status.models,
            endpoint: status.endpoint,
            uptime_ms: status.uptime_ms,
            generation: status.generation,
            ready: status.ready,
            instances: status.instances.into_iter().map(Into::into).collect(),
            stand_ins: status.stand_ins,
        }
    }
}

impl From<wire::GetStatusResponse> for Status {
    fn from(status: wire::GetStatusResponse) -> Self {
        Self {
            name: status.name,
            models: status.models,
            endpoint: status.endpoint,
            uptime_ms: status.uptime_ms,
            generation: status.generation,
            ready: status.ready,
            instances: status.instances.into_iter().map(Into::into).collect(),
            stand_ins: status.stand_ins,
        }
    }
}

impl From<Instance> for wire::Instance {
    fn from(instance: Instance) -> Self {
        Self {
            role: instance.role,
            path: instance.path,
            node: instance.node,
            state: state_to_wire(instance.state).into(),
            epoch: instance.epoch,
            restarts: instance.restarts,
            pid: instance.pid,
            steps: instance.steps,
            running: instance.running,
            waiting: instance.waiting,
            blocks: instance.blocks.map(Into::into),
            last_exit: instance.last_exit,
        }
    }
}

impl From<wire::Instance> for Instance {
    fn from(instance: wire::Instance) -> Self {
        Self {
            state: state_from_wire(instance.state()),
            role: instance.role,
            path: instance.path,
            node: instance.node,
            epoch: instance.epoch,
            restarts: instance.restarts,
            pid: instance.pid,
            steps: instance.steps,
            running: instance.running,
            waiting: instance.waiting,
            blocks: instance.blocks.map(Into::into),
            last_exit: instance.last_exit,
        }
    }
}
