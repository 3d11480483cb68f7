//! What is printed when a cluster is ready.

use cluster_api::{Instance, Status};

use crate::table::table;

/// The instances, and how to use them.
pub(super) fn ready(status: &Status) -> String {
    let rows: Vec<Vec<String>> = status.instances.iter().map(row).collect();
    let table = table(&["ROLE", "INSTANCE", "WHERE", "STATE"], &rows);
    let model = status.models.first().map_or("no model", String::as_str);
    format!("{table}\n{model} is served at {}/v1\n", status.endpoint)
}

fn row(instance: &Instance) -> Vec<String> {
    vec![
        instance.role.clone(),
        instance.path.clone(),
        instance.node.clone(),
        instance.state.to_string(),
    ]
}

#[cfg(test)]
mod tests;
