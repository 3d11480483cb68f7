//! `cluster down`: lets a running cluster finish what it has, then end.

use std::{io::Write, time::Duration};

use clap::Args;
use tokio::time::{Instant, sleep};

use super::target::Target;
use crate::{environment::Environment, failure::Failure, runs::Runs};

/// Stop a running cluster: no new requests, those in flight are finished, then it ends.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  cluster down                    the only cluster of this machine
  cluster down local --grace 0    at once; requests in flight are cut off, each with one error")]
pub(crate) struct Arguments {
    /// The cluster's name; needed when several run on this machine
    name: Option<String>,
    /// The address of its control-plane API, for one that runs elsewhere
    #[arg(long, value_name = "ADDR")]
    api: Option<String>,
    /// How long requests in flight may go on; without it, as long as 'limits.drain' of the topology says
    #[arg(long, value_name = "SECONDS")]
    grace: Option<u32>,
}

/// What an orderly end may take beyond the grace for requests.
const MARGIN: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(50);

pub(crate) async fn run(arguments: Arguments, environment: &Environment, out: &mut dyn Write) -> Result<(), Failure> {
    let target = Target::find(arguments.name.as_deref(), arguments.api.as_deref(), environment)?;
    let drain = target.connect().await?.shutdown(arguments.grace).await?;
    let Target::Here(run) = target else {
        return Ok(writeln!(out, "draining, {} requests in flight", drain.in_flight)?);
    };
    let limit = Instant::now() + Duration::from_secs(drain.grace_s.into()) + MARGIN;
    let runs = Runs::new(&environment.state);
    while runs.find(&run.name).is_some_and(|now| now.pid == run.pid) {
        if Instant::now() > limit {
            return Err(Failure::failed(format!(
                "cluster '{}' has not ended\n  help: 'kill -9 {}' ends it",
                run.name, run.pid
            )));
        }
        sleep(LOOK_EVERY).await;
    }
    Ok(writeln!(
        out,
        "{} stopped, {} requests were in flight",
        run.name, drain.in_flight
    )?)
}
