//! `cluster events`: what happened to the instances of a running cluster.

use std::{
    io::Write,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use clap::Args;
use cluster_api::Event;

use super::{target::Target, write_json};
use crate::{
    environment::Environment,
    failure::Failure,
    table::{duration, table},
};

/// Show what happened in a running cluster, oldest first: starts, deaths, restarts.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  cluster events                  the only cluster of this machine
  cluster events local --json     for scripts

The last 1000 events are kept.")]
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
    let events = target.connect().await?.events(0).await?;
    if arguments.json {
        return write_json(&events, out);
    }
    Ok(out.write_all(render(&events, SystemTime::now()).as_bytes())?)
}

fn render(events: &[Event], now: SystemTime) -> String {
    let row = |event: &Event| {
        let at = UNIX_EPOCH + Duration::from_millis(event.at_unix_ms);
        // An event of another machine may lie a little ahead of our clock.
        let age = now.duration_since(at).unwrap_or_default();
        vec![
            event.sequence.to_string(),
            duration(age.as_millis() as u64),
            event.subject.clone(),
            event.kind.clone(),
            event.message.clone(),
        ]
    };
    let rows: Vec<Vec<String>> = events.iter().map(row).collect();
    table(&["NUMBER", "AGO", "WHO", "WHAT", "HOW"], &rows)
}
