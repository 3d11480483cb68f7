//! A cluster in the background: the same program again, in a process group of its own, with its output in a log file.

use std::{
    env,
    fs::{self, File},
    io::{self, Write},
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use cluster_api::{Client, Status};

use super::{Arguments, Log, banner};
use crate::{
    commands::block_on,
    failure::Failure,
    runs::{Run, Runs},
};

const LOOK_EVERY: Duration = Duration::from_millis(25);
/// How much of the log is shown when the start fails.
const TAIL_LINES: usize = 20;

/// Starts the cluster and waits until it is ready or has failed.
pub(super) fn run(arguments: &Arguments, name: &str, runs: &Runs, out: &mut dyn Write) -> Result<(), Failure> {
    let log = runs.log(name);
    let mut child = spawn(arguments, &log).map_err(|error| {
        Failure::failed(format!(
            "cannot start a process with its log in {}: {error}",
            log.display()
        ))
    })?;
    let run = wait_until_ready(&mut child, name, runs, &log)?;
    let status = block_on(status(&run.api))??;
    out.write_all(banner::ready(&status).as_bytes())?;
    writeln!(
        out,
        "It runs as process {}, its log is {}; 'cluster down {name}' stops it.",
        run.pid,
        log.display()
    )?;
    Ok(())
}

async fn status(api: &str) -> Result<Status, Failure> {
    Ok(Client::connect(api).await?.status().await?)
}

fn spawn(arguments: &Arguments, log: &Path) -> io::Result<Child> {
    if let Some(folder) = log.parent() {
        fs::create_dir_all(folder)?;
    }
    let output = File::create(log)?;
    let mut command = Command::new(env::current_exe()?);
    command
        .arg("up")
        .arg(&arguments.file)
        .arg("--api")
        .arg(arguments.api.to_string());
    if let Some(port) = arguments.port {
        command.arg("--port").arg(port.to_string());
    }
    if arguments.log == Log::Json {
        command.args(["--log", "json"]);
    }
    command
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        // Ctrl-C at the terminal is meant for whoever is in front.
        .process_group(0)
        .spawn()
}

/// The cluster bounds its own start; here it only has to be told apart whether it came up or ended.
fn wait_until_ready(child: &mut Child, name: &str, runs: &Runs, log: &Path) -> Result<Run, Failure> {
    loop {
        if let Some(run) = runs.find(name).filter(|run| run.pid == child.id()) {
            return Ok(run);
        }
        let ended = child
            .try_wait()
            .map_err(|error| Failure::failed(format!("lost the process: {error}")))?;
        if let Some(status) = ended {
            let text = fs::read_to_string(log).unwrap_or_default();
            return Err(Failure::failed(format!(
                "the cluster did not come up ({status}); the end of {}:\n{}",
                log.display(),
                tail(&text, TAIL_LINES)
            )));
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// The last `count` lines.
fn tail(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

#[cfg(test)]
mod tests;
