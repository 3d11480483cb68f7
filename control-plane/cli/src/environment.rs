//! The environment variables, read once.

use std::{env, ffi::OsString, path::PathBuf};

use cluster_artifacts::{HfSettings, Store};

use crate::failure::Failure;

/// What the environment says.
#[derive(Clone, Debug)]
pub(crate) struct Environment {
    /// Where models are kept.
    pub(crate) cache: PathBuf,
    /// Where running clusters leave their addresses.
    pub(crate) state: PathBuf,
    /// Which log lines `up` writes.
    pub(crate) log_filter: String,
    /// Where `up` sends its spans.
    pub(crate) otlp_endpoint: Option<String>,
    /// Sent by `chat` to the endpoint.
    pub(crate) api_key: Option<String>,
    /// How to reach Hugging Face.
    hf: HfSettings,
}

impl Environment {
    /// Reads the process's environment.
    pub(crate) fn read() -> Result<Self, Failure> {
        Self::from_lookup(|name| env::var_os(name))
    }

    fn from_lookup(lookup: impl Fn(&str) -> Option<OsString>) -> Result<Self, Failure> {
        // An empty variable counts as none, as in the XDG base directory rules.
        let get = |name: &str| lookup(name).filter(|value| !value.is_empty());
        let text = |name: &str| get(name).and_then(|value| value.into_string().ok());
        let below_home = |rest: &str| {
            let home = get("HOME").ok_or_else(|| Failure::input("HOME is not set, so there is no place for files"))?;
            Ok::<_, Failure>(PathBuf::from(home).join(rest))
        };
        let cache = match (get("CLUSTER_CACHE"), get("XDG_CACHE_HOME")) {
            (Some(own), _) => own.into(),
            (None, Some(shared)) => PathBuf::from(shared).join("cluster"),
            (None, None) => below_home(".cache/cluster")?,
        };
        let state = match get("XDG_STATE_HOME") {
            Some(shared) => PathBuf::from(shared).join("cluster"),
            None => below_home(".local/state/cluster")?,
        };
        let usual = HfSettings::default();
        let hf = HfSettings {
            endpoint: text("HF_ENDPOINT").unwrap_or(usual.endpoint),
            token: text("HF_TOKEN"),
            ..HfSettings::default()
        };
        Ok(Self {
            cache,
            state,
            log_filter: text("CLUSTER_LOG").unwrap_or_else(|| "warn,cluster=info".into()),
            otlp_endpoint: text("OTEL_EXPORTER_OTLP_ENDPOINT"),
            api_key: text("CLUSTER_API_KEY"),
            hf,
        })
    }

    /// The store of model files.
    pub(crate) fn store(&self) -> Store {
        Store::new(&self.cache).with_hf(self.hf.clone())
    }
}

#[cfg(test)]
mod tests;
