//! What changes between two plans. Starting is the difference from nothing, stopping the difference to nothing.

use cluster_messages::ActorPath;
use serde::{Deserialize, Serialize};

use crate::{Instance, Plan, devices::ranges};

/// What has to be done to get from one plan to another.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Diff {
    /// To be started, in this order.
    pub added: Vec<ActorPath>,
    /// To be stopped, in this order: who needs goes before who is needed.
    pub removed: Vec<ActorPath>,
    /// To be replaced, in this order.
    pub changed: Vec<Change>,
    /// Nothing to be done.
    pub kept: Vec<ActorPath>,
    /// What changed beside the instances.
    pub cluster: Vec<String>,
}

impl Diff {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.changed.is_empty() && self.cluster.is_empty()
    }
}

/// An instance that is to be replaced, and why.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Change {
    /// Which.
    pub path: ActorPath,
    /// Old and new value of each thing that changed.
    pub what: Vec<String>,
}

/// The difference between two plans; none means nothing runs.
pub fn diff(before: Option<&Plan>, after: Option<&Plan>) -> Diff {
    let mut diff = Diff::default();
    let old = |path| before.and_then(|plan| plan.instance(path));
    for instance in after.iter().flat_map(|plan| &plan.instances) {
        match old(instance.path) {
            None => diff.added.push(instance.path),
            Some(was) => match changes(was, instance, model_change(before, after)) {
                what if what.is_empty() => diff.kept.push(instance.path),
                what => diff.changed.push(Change {
                    path: instance.path,
                    what,
                }),
            },
        }
    }
    let gone = before.iter().flat_map(|plan| &plan.instances).rev();
    let gone = gone.filter(|instance| after.is_none_or(|plan| plan.instance(instance.path).is_none()));
    diff.removed = gone.map(|instance| instance.path).collect();
    if let (Some(before), Some(after)) = (before, after) {
        diff.cluster = cluster_changes(before, after);
    }
    diff
}

/// A new model replaces every instance: they all know its name, tokens or pages.
fn model_change(before: Option<&Plan>, after: Option<&Plan>) -> Option<String> {
    let (before, after) = (before?, after?);
    if before.model == after.model {
        return None;
    }
    Some(changed(
        "model",
        &before.model.served_names.join(","),
        &after.model.served_names.join(","),
    ))
}

fn changes(before: &Instance, after: &Instance, model: Option<String>) -> Vec<String> {
    let mut what: Vec<String> = model.into_iter().collect();
    let mut compare = |name: &str, before: String, after: String| {
        if before != after {
            what.push(changed(name, &before, &after));
        }
    };
    compare("node", before.node.to_string(), after.node.to_string());
    compare("folds", format!("{:?}", before.folds), format!("{:?}", after.folds));
    compare("threads", before.threads.to_string(), after.threads.to_string());
    compare("devices", ranges(&before.devices), ranges(&after.devices));
    compare("parallel", ranks(before), ranks(after));
    compare("needs", format!("{:?}", before.needs), format!("{:?}", after.needs));
    what.extend(settings_changes(before, after));
    what
}

fn ranks(instance: &Instance) -> String {
    let parallel = instance.parallel;
    format!(
        "tensor {} expert {} data {} sequence {}",
        parallel.tensor, parallel.expert, parallel.data, parallel.sequence
    )
}

/// The settings that differ, one by one. They are compared as JSON, so that a new setting needs no line here.
fn settings_changes(before: &Instance, after: &Instance) -> Vec<String> {
    let flat = |instance: &Instance| {
        let mut pairs = Vec::new();
        let json = serde_json::to_value(&instance.settings).expect("settings are plain data");
        flatten(&json, "", &mut pairs);
        pairs
    };
    let (before, after) = (flat(before), flat(after));
    after
        .iter()
        .filter_map(|(name, value)| {
            let old = before
                .iter()
                .find(|(other, _)| other == name)
                .map_or("nothing", |(_, old)| old);
            (old != value).then(|| changed(name, old, value))
        })
        .collect()
}

fn flatten(json: &serde_json::Value, name: &str, pairs: &mut Vec<(String, String)>) {
    match json.as_object() {
        Some(fields) => fields.iter().for_each(|(field, value)| flatten(value, field, pairs)),
        None => pairs.push((name.to_owned(), json.to_string())),
    }
}

fn cluster_changes(before: &Plan, after: &Plan) -> Vec<String> {
    let mut what = Vec::new();
    let endpoint = |plan: &Plan| format!("{}:{}", plan.endpoint.host, plan.endpoint.port);
    if before.endpoint != after.endpoint {
        what.push(changed("endpoint", &endpoint(before), &endpoint(after)));
    }
    let sections = [
        ("limits", before.limits != after.limits),
        ("links", before.links != after.links),
        ("restart", before.restart != after.restart),
    ];
    what.extend(
        sections
            .into_iter()
            .filter(|(_, differs)| *differs)
            .map(|(name, _)| format!("{name} changed")),
    );
    what
}

fn changed(name: &str, before: &str, after: &str) -> String {
    format!("{name}: {before} -> {after}")
}
