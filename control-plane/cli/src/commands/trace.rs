//! `cluster trace`: where the time of one request went.

use std::io::Write;

use clap::Args;
use cluster_telemetry::{SpanRecord, waterfall};
use terminal_size::terminal_size;

use super::{target::Target, write_json};
use crate::{environment::Environment, failure::Failure};

/// Show the spans of one request as a waterfall.
#[derive(Args, Debug)]
#[command(after_help = "\
Example:
  cluster trace chatcmpl-0194f3a2b7c84d6e9f10213243546576

The id is the one in the answer; each cluster keeps the traces of its last requests.")]
pub(crate) struct Arguments {
    /// The id of the answer, or its digits alone
    request_id: String,
    /// The cluster's name; needed when several run on this machine
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,
    /// The address of its control-plane API, for one that runs elsewhere
    #[arg(long, value_name = "ADDR")]
    api: Option<String>,
    /// Print the spans as JSON
    #[arg(long)]
    json: bool,
}

/// Where the output is no terminal.
const WIDTH_ELSEWHERE: usize = 160;

pub(crate) async fn run(arguments: Arguments, environment: &Environment, out: &mut dyn Write) -> Result<(), Failure> {
    let target = Target::find(arguments.cluster.as_deref(), arguments.api.as_deref(), environment)?;
    let json = target.connect().await?.trace(&arguments.request_id).await?;
    let spans: Vec<SpanRecord> = serde_json::from_str(&json)
        .map_err(|error| Failure::failed(format!("the cluster's answer is no list of spans: {error}")))?;
    if arguments.json {
        return write_json(&spans, out);
    }
    let width = terminal_size().map_or(WIDTH_ELSEWHERE, |(width, _)| width.0.into());
    Ok(out.write_all(waterfall(&spans, width).as_bytes())?)
}
