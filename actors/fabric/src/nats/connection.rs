//! One client with its limits: how it connects, and what becomes of the events it reports.

use std::{
    fmt,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_nats::{Client, ConnectOptions, Event, ServerAddr, connection::State};
use tokio::task::AbortHandle;

use super::{
    ROUND_TRIP,
    inbox::{self, Inbox, Waiting},
    outlets::Outlets,
};
use crate::messaging::{HEADERS_MAX, MessagingError, PAYLOAD_MAX};

/// A connection that answers nothing for three of these is given up.
const PING: Duration = Duration::from_secs(1);

/// The pause before the first attempt to connect again; each is twice the one before.
const PAUSE: Duration = Duration::from_millis(20);

/// The longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// What the largest message takes: a header has at least one byte, and four between and behind its name and its value.
const NEEDED: usize = PAYLOAD_MAX + 6 * HEADERS_MAX;

/// Who connects.
#[derive(Clone, Default)]
pub enum NatsCredentials {
    /// Nobody: a server for development.
    #[default]
    None,
    /// A user with a password.
    Password {
        /// The user.
        name: String,
        /// Never printed.
        password: String,
    },
    /// A token. Never printed.
    Token(String),
    /// A file with a signed user and its key, as `nsc` writes it.
    File(PathBuf),
}

impl fmt::Debug for NatsCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NatsCredentials::None => write!(f, "NatsCredentials(none)"),
            NatsCredentials::Password { name, .. } => write!(f, "NatsCredentials({name})"),
            NatsCredentials::Token(_) => write!(f, "NatsCredentials(a token)"),
            NatsCredentials::File(file) => write!(f, "NatsCredentials({})", file.display()),
        }
    }
}

/// Which NATS, and as whom.
#[derive(Clone, Debug)]
pub struct NatsOptions {
    /// Such as `127.0.0.1:4222`; one of them is enough to start with.
    pub servers: Vec<String>,
    /// What the server's own lists call this connection: the node.
    pub name: String,
    /// Where the server asks for them.
    pub credentials: NatsCredentials,
    /// The most messages of one subscription that the client holds before they are looked at.
    pub backlog_max: usize,
}

impl NatsOptions {
    /// A connection called `name` to one server that asks for nothing.
    pub fn new(server: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            servers: vec![server.into()],
            name: name.into(),
            credentials: NatsCredentials::None,
            backlog_max: 64 * 1024,
        }
    }
}

pub(super) struct Connection {
    pub(super) client: Client,
    pub(super) inbox: Inbox,
    pub(super) outlets: Outlets,
    servers: String,
    trouble: Trouble,
    sorting: AbortHandle,
}

impl Connection {
    pub(super) async fn open(options: NatsOptions) -> Result<Self, MessagingError> {
        let unusable = |error: &dyn fmt::Display| MessagingError::Unavailable(error.to_string());
        let mut addresses = Vec::new();
        for server in &options.servers {
            addresses.push(server.parse::<ServerAddr>().map_err(|error| unusable(&error))?);
        }
        let servers = options.servers.join(", ");
        let (waiting, outlets, trouble) = (Waiting::default(), Outlets::default(), Trouble::default());
        let watching = Watching {
            waiting: waiting.clone(),
            outlets: outlets.clone(),
            trouble: trouble.clone(),
        };
        let how = with_credentials(configured(&options, watching), options.credentials).await?;
        let client = how.connect(addresses).await.map_err(|error| unusable(&error))?;

        let prefix = format!("{}.", client.new_inbox());
        let answers = client.subscribe(format!("{prefix}*")).await;
        let answers = answers.map_err(|error| unusable(&error))?;
        let sorting = tokio::spawn(tokio::task::unconstrained(inbox::sort(answers, waiting.clone())));
        Ok(Self {
            inbox: Inbox::new(prefix, waiting),
            sorting: sorting.abort_handle(),
            client,
            outlets,
            servers,
            trouble,
        })
    }

    /// Whether something sent now would go out now. The client itself would keep it and call it sent.
    pub(super) fn check(&self) -> Result<(), MessagingError> {
        if self.client.connection_state() != State::Connected {
            return Err(self.unavailable());
        }
        let max_payload = self.client.max_payload();
        if max_payload < NEEDED {
            return Err(MessagingError::Unavailable(format!(
                "the server takes messages of at most {max_payload} bytes, and {NEEDED} are needed: raise its max_payload"
            )));
        }
        Ok(())
    }

    /// That the server does not answer, and the last thing heard of it.
    pub(super) fn unavailable(&self) -> MessagingError {
        let servers = &self.servers;
        MessagingError::Unavailable(match self.trouble.last() {
            Some(trouble) => format!("no answer from NATS at {servers} ({trouble})"),
            None => format!("no answer from NATS at {servers}"),
        })
    }

    pub(super) fn connections(&self) -> u64 {
        let statistics = self.client.statistics();
        statistics.connects.load(std::sync::atomic::Ordering::Relaxed)
    }

    pub(super) fn servers(&self) -> &str {
        &self.servers
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.sorting.abort();
    }
}

fn configured(options: &NatsOptions, watching: Watching) -> ConnectOptions {
    let watching = Arc::new(watching);
    ConnectOptions::new()
        .name(&options.name)
        .retry_on_initial_connect()
        .max_reconnects(None)
        .connection_timeout(ROUND_TRIP)
        .ping_interval(PING)
        .subscription_capacity(options.backlog_max.max(1))
        .reconnect_delay_callback(pause)
        .event_callback(move |event| {
            watching.take(&event);
            std::future::ready(())
        })
}

async fn with_credentials(how: ConnectOptions, credentials: NatsCredentials) -> Result<ConnectOptions, MessagingError> {
    Ok(match credentials {
        NatsCredentials::None => how,
        NatsCredentials::Password { name, password } => how.user_and_password(name, password),
        NatsCredentials::Token(token) => how.token(token),
        NatsCredentials::File(file) => {
            let read = how.credentials_file(&file).await;
            read.map_err(|error| MessagingError::Unavailable(format!("{}: {error}", file.display())))?
        }
    })
}

/// The pause before attempt number `attempt`, from 1.
fn pause(attempt: usize) -> Duration {
    let doublings = u32::try_from(attempt.saturating_sub(1)).unwrap_or(u32::MAX);
    PAUSE.saturating_mul(2u32.saturating_pow(doublings)).min(LONGEST_PAUSE)
}

/// What the client's events act on.
struct Watching {
    waiting: Waiting,
    outlets: Outlets,
    trouble: Trouble,
}

impl Watching {
    fn take(&self, event: &Event) {
        match event {
            Event::Connected => self.trouble.set(None),
            // Their answers would have come by the connection that is gone.
            Event::Disconnected | Event::Closed => self.waiting.give_up(),
            Event::SlowConsumer(_) => self.outlets.overflow(),
            Event::ServerError(error) => {
                tracing::warn!(%error, "NATS refused something");
                self.trouble.set(Some(error.to_string()));
            }
            Event::ClientError(error) => self.trouble.set(Some(error.to_string())),
            Event::LameDuckMode | Event::Draining => {}
        }
    }
}

/// Why there is no connection, as far as known. Clones share it.
#[derive(Clone, Default)]
struct Trouble(Arc<Mutex<Option<String>>>);

impl Trouble {
    fn set(&self, trouble: Option<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
    }

    fn last(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests;
