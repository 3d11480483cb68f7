//! How the network sources behave on this machine. The values come from the caller; nothing here reads the environment.

use std::time::Duration;

/// How to reach a Hugging Face hub.
#[derive(Clone, Debug)]
pub struct HfSettings {
    /// Such as `https://huggingface.co`, without a final slash.
    pub endpoint: String,
    /// Sent as a bearer token, for repositories that are not public.
    pub token: Option<String>,
    /// The longest wait for the first byte.
    pub connect_timeout: Duration,
    /// The longest pause between two bytes.
    pub stall_timeout: Duration,
}

impl Default for HfSettings {
    fn default() -> Self {
        Self {
            endpoint: "https://huggingface.co".into(),
            token: None,
            connect_timeout: Duration::from_secs(6),
            stall_timeout: Duration::from_secs(20),
        }
    }
}

/// How to call the user's pip, whose own configuration names the index.
#[derive(Clone, Debug)]
pub struct PipSettings {
    /// Commands that may be pip, the first that starts is used.
    pub commands: Vec<Vec<String>>,
    /// The longest that pip may go on without having written anything.
    pub stall_timeout: Duration,
}

impl Default for PipSettings {
    fn default() -> Self {
        let command = |words: &[&str]| words.iter().map(|word| (*word).into()).collect();
        Self {
            commands: vec![
                command(&["python3", "-m", "pip"]),
                command(&["pip3"]),
                command(&["pip"]),
            ],
            stall_timeout: Duration::from_secs(60),
        }
    }
}
