//! `cluster bench`: how fast a model runs on this machine, without actors and HTTP around it.

use std::{
    io::Write,
    path::{Path, PathBuf},
};

use clap::{Args, builder::RangedI64ValueParser};
use cluster_node::{BenchOptions, Machine, Measured, ServedModel, bench, machine};
use serde::Serialize;

use super::{pull, write_json};
use crate::{environment::Environment, failure::Failure, model_file};

/// Measure prefill and decode of a model on this machine.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  cluster bench
  cluster bench ./model.gguf --threads 2 --prompt 512 --batch 1,8 --json

Each figure is the best of its repetitions. SIZE is the length of the prompt for prefill, the number of sequences that are
decoded together for decode. Use a release build, and leave the machine alone meanwhile.")]
pub(crate) struct Arguments {
    /// The name of a model, a model file (.yaml), a .gguf file, or a folder with safetensors
    #[arg(default_value = "smollm2-135m-instruct")]
    model: String,
    /// Threads that compute; as many as there are cores if not given
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Option<u32>,
    /// Runs for each figure
    #[arg(long, value_name = "COUNT", default_value_t = 3, value_parser = positive())]
    repeat: u32,
    /// Lengths of prompts; those that the model's context does not hold are left out
    #[arg(long, value_name = "TOKENS", value_delimiter = ',', default_value = "512,2048", value_parser = positive())]
    prompt: Vec<u32>,
    /// Numbers of sequences decoded together
    #[arg(long, value_name = "COUNT", value_delimiter = ',', default_value = "1,8,32", value_parser = positive())]
    batch: Vec<u32>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// More than anyone measures, and few enough to count with.
const LARGEST: i64 = 1 << 20;

fn positive() -> RangedI64ValueParser<u32> {
    RangedI64ValueParser::new().range(1..=LARGEST)
}

/// The result, for programs.
#[derive(Serialize)]
struct Report<'a> {
    model: &'a Path,
    cores: u32,
    isa: &'static str,
    threads: u32,
    repeat: u32,
    figures: Vec<Figure>,
}

#[derive(Serialize)]
struct Figure {
    what: &'static str,
    size: u32,
    tokens: u32,
    ms: f64,
    tokens_per_s: f64,
}

impl From<Measured> for Figure {
    fn from(measured: Measured) -> Self {
        Self {
            what: if measured.is_prefill { "prefill" } else { "decode" },
            size: measured.size,
            tokens: measured.tokens,
            ms: measured.time.as_secs_f64() * 1e3,
            tokens_per_s: measured.rate(),
        }
    }
}

pub(crate) fn run(arguments: &Arguments, environment: &Environment, out: &mut dyn Write) -> Result<(), Failure> {
    let path = locate(&arguments.model, environment)?;
    let model = ServedModel::of_weights(&path).map_err(|error| Failure::failed(error.to_string()))?;
    let machine = machine();
    let options = BenchOptions {
        threads: arguments.threads.unwrap_or(machine.cores),
        repeat: arguments.repeat,
        prompts: arguments.prompt.clone(),
        batches: arguments.batch.clone(),
    };
    if !arguments.json {
        out.write_all(heading(&path, machine, &options).as_bytes())?;
    }
    let (mut figures, mut written) = (Vec::new(), Ok(()));
    let measured = bench(&model, &options, |measured| {
        let figure = Figure::from(measured);
        // A figure takes seconds: each is shown when it is there.
        if !arguments.json && written.is_ok() {
            written = writeln!(out, "{}", line(&figure)).and_then(|()| out.flush());
        }
        figures.push(figure);
    });
    measured.map_err(|error| Failure::failed(error.to_string()))?;
    written?;
    if arguments.json {
        let report = Report {
            model: &path,
            cores: machine.cores,
            isa: machine.isa,
            threads: options.threads,
            repeat: options.repeat,
            figures,
        };
        return write_json(&report, out);
    }
    Ok(())
}

/// Where the weights lie; a model that is known by name is fetched if need be.
fn locate(model: &str, environment: &Environment) -> Result<PathBuf, Failure> {
    let path = Path::new(model);
    let is_path = model.contains('/') || model.ends_with(".gguf") || path.is_dir();
    if !is_path || model.ends_with(".yaml") {
        return model_file::ensure(&environment.store(), &pull::find(model)?);
    }
    if path.exists() {
        return Ok(path.to_owned());
    }
    Err(Failure::input(format!("there is no {model}")))
}

fn heading(path: &Path, machine: Machine, options: &BenchOptions) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    format!(
        "{name}: threads {}, cores {}, {}, best of {}\n\n{:<8}{:>6}{:>12}{:>12}\n",
        options.threads, machine.cores, machine.isa, options.repeat, "WHAT", "SIZE", "TOKENS/S", "MS"
    )
}

fn line(figure: &Figure) -> String {
    format!(
        "{:<8}{:>6}{:>12.1}{:>12.1}",
        figure.what, figure.size, figure.tokens_per_s, figure.ms
    )
}
