//! `cluster status`: what runs, where, and how it is.

use std::io::Write;

use clap::Args;
use cluster_api::{Instance, Status};

use super::{target::Target, write_json};
use crate::{
    environment::Environment,
    failure::Failure,
    table::{duration, table},
};

/// Show the instances of a running cluster.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  cluster status                  the only cluster of this machine
  cluster status local --json     for scripts

BLOCKS are KV blocks: held by requests / kept for reuse / all.
STEPS that stand still while requests run or wait mean that the instance hangs.")]
pub(crate) struct Arguments {
    /// The cluster's name; needed when several run on this machine
    name: Option<String>,
    /// The address of its control-plane API, for one that runs elsewhere
    #[arg(long, value_name = "ADDR")]
    api: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(arguments: Arguments, environment: &Environment, out: &mut dyn Write) -> Result<(), Failure> {
    let target = Target::find(arguments.name.as_deref(), arguments.api.as_deref(), environment)?;
    let status = target.connect().await?.status().await?;
    if arguments.json {
        return write_json(&status, out);
    }
    Ok(out.write_all(render(&status).as_bytes())?)
}

fn render(status: &Status) -> String {
    let readiness = if status.ready { "ready" } else { "not ready" };
    let heading = format!(
        "{}: {readiness} at {}, up {}, generation {}\nmodel: {}\n{}\n",
        status.name,
        status.endpoint,
        duration(status.uptime_ms),
        status.generation,
        status.models.join(", "),
        stand_ins(&status.stand_ins)
    );
    let headings = [
        "INSTANCE",
        "NODE",
        "STATE",
        "EPOCH",
        "RESTARTS",
        "PID",
        "STEPS",
        "RUNNING",
        "WAITING",
        "BLOCKS",
        "LAST EXIT",
    ];
    let rows: Vec<Vec<String>> = status.instances.iter().map(row).collect();
    heading + &table(&headings, &rows)
}

fn stand_ins(lines: &[String]) -> String {
    lines.iter().map(|line| format!("emulated: {line}\n")).collect()
}

fn row(instance: &Instance) -> Vec<String> {
    let blocks = instance.blocks.map_or_else(
        || "-".into(),
        |blocks| format!("{}/{}/{}", blocks.used, blocks.cached, blocks.total),
    );
    vec![
        instance.path.clone(),
        instance.node.clone(),
        instance.state.to_string(),
        instance.epoch.to_string(),
        instance.restarts.to_string(),
        instance.pid.to_string(),
        instance.steps.to_string(),
        instance.running.to_string(),
        instance.waiting.to_string(),
        blocks,
        instance.last_exit.clone().unwrap_or_else(|| "-".into()),
    ]
}

#[cfg(test)]
mod tests;
