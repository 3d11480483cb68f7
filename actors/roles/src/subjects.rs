//! The subjects that events travel on: `cluster.{namespace}.{kind}.{instance}`.

use cluster_messages::InstanceRef;

use crate::host::Host;

/// Block changes of one instance.
pub(crate) fn kv(host: &Host, instance: InstanceRef) -> String {
    format!("cluster.{}.kv.{}", host.namespace, token(instance))
}

/// Block changes of all instances.
pub(crate) fn all_kv(host: &Host) -> String {
    format!("cluster.{}.kv.*", host.namespace)
}

/// Load reports of one instance.
pub(crate) fn load(host: &Host, instance: InstanceRef) -> String {
    format!("cluster.{}.load.{}", host.namespace, token(instance))
}

/// Load reports of all instances.
pub(crate) fn all_load(host: &Host) -> String {
    format!("cluster.{}.load.*", host.namespace)
}

/// Where one instance is asked for a snapshot of its blocks.
pub(crate) fn snapshot(host: &Host, instance: InstanceRef) -> String {
    format!("cluster.{}.snapshot.{}", host.namespace, token(instance))
}

/// An instance as one part of a subject, which must not contain a dot.
fn token(instance: InstanceRef) -> String {
    format!("{}-{}-{}", instance.path.role, instance.path.ordinal, instance.epoch.0)
}
