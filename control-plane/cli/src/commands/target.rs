//! Which running cluster a command means.

use cluster_api::Client;

use crate::{
    environment::Environment,
    failure::Failure,
    runs::{Run, Runs},
};

/// A cluster to talk to: by the address of its API, or one that runs on this machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Target {
    Address(String),
    Here(Run),
}

impl Target {
    /// The cluster at `api`, the one called `name`, or the only one.
    pub(super) fn find(name: Option<&str>, api: Option<&str>, environment: &Environment) -> Result<Self, Failure> {
        match api {
            Some(address) => Ok(Target::Address(address.into())),
            None => choose(name, Runs::new(&environment.state).list()).map(Target::Here),
        }
    }

    /// A connection to its API.
    pub(super) async fn connect(&self) -> Result<Client, Failure> {
        match self {
            Target::Address(address) => Ok(Client::connect(address).await?),
            Target::Here(run) => Client::connect(&run.api).await.map_err(|_| {
                Failure::failed(format!(
                    "cluster '{}' does not answer at {}\n  help: it runs as process {}; 'kill {}' ends it",
                    run.name, run.api, run.pid, run.pid
                ))
            }),
        }
    }
}

fn choose(name: Option<&str>, mut runs: Vec<Run>) -> Result<Run, Failure> {
    let names: Vec<String> = runs.iter().map(|run| run.name.clone()).collect();
    let names = names.join(", ");
    match (name, runs.len()) {
        (None, 0) => Err(Failure::failed(
            "no cluster runs on this machine\n  help: start one with 'cluster up FILE', or name another's API with --api",
        )),
        (None, 1) => Ok(runs.remove(0)),
        (None, _) => Err(Failure::input(format!(
            "several clusters run here; name one of {names}"
        ))),
        (Some(name), _) => runs.into_iter().find(|run| run.name == name).ok_or_else(|| {
            let help = if names.is_empty() { "none" } else { &names };
            Failure::failed(format!(
                "no cluster '{name}' runs on this machine\n  help: running here: {help}"
            ))
        }),
    }
}

#[cfg(test)]
mod tests;
