//! What is printed when a cluster is ready.

use cluster_api::{Instance, Status};

use crate::table::table;

/// The instances, and how to use them.
pub(super) fn ready(status: &Status) -> String {
    let rows: Vec<Vec<String>> = status.instances.iter().map(row).collect();
    let table = table(&["ROLE", "INSTANCE", "WHERE", "STATE"], &rows);
    let model = status.models.first().map_or("no model", String::as_str);
    let emulation = emulation(&status.stand_ins);
    format!("{emulation}{table}\n{model} is served at {}/v1\n", status.endpoint)
}

/// What stands in for what, so that nobody takes a stand-in's answers for the model's.
fn emulation(stand_ins: &[String]) -> String {
    if stand_ins.is_empty() {
        return String::new();
    }
    let lines: String = stand_ins.iter().map(|line| format!("  {line}\n")).collect();
    format!(
        "EMULATION: this machine lacks what the topology declares. Standing in:\n{lines}\
         Answers and speeds are those of the stand-ins.\n\n"
    )
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
