//! Between the roles and around them: links, limits at the door, restarts.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ByteSize, Span};

/// How state moves between roles.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Links {
    /// Pages, from prefill to decode.
    pub kv: Carrier,
    /// Embeddings, from encoder to prefill.
    pub features: Carrier,
}

impl Default for Links {
    fn default() -> Self {
        Self {
            kv: Carrier::Auto,
            features: Carrier::Auto,
        }
    }
}

/// What moves bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Carrier {
    /// The fastest that reaches.
    Auto,
    /// Memory of the one process.
    InProcess,
    /// Memory shared between processes of a machine.
    SharedMemory,
    /// Sockets.
    Tcp,
    /// Between accelerators.
    Nccl,
}

impl Carrier {
    /// The word in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::InProcess => "in-process",
            Self::SharedMemory => "shared-memory",
            Self::Tcp => "tcp",
            Self::Nccl => "nccl",
        }
    }
}

/// What is refused at the door.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Requests in flight; further ones get 503 with `Retry-After`.
    #[schemars(range(min = 1, max = 1_048_576))]
    pub requests_max: u32,
    /// The largest request body; larger ones get 413.
    pub body_max: ByteSize,
    /// After this a request ends with an error, whatever it is doing.
    pub timeout: Span,
    /// How long running requests may go on after the cluster was told to stop.
    pub drain: Span,
    /// Pictures and sounds in requests.
    pub media: MediaLimits,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            requests_max: 256,
            body_max: ByteSize::mib(8),
            timeout: Span::from_s(600),
            drain: Span::from_s(30),
            media: MediaLimits::default(),
        }
    }
}

/// What is refused of pictures and sounds. Data URLs are always read; these bounds hold for them too.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MediaLimits {
    /// Hosts that http and https addresses may name, such as `images.example.com`. None: no address is fetched.
    pub allowed_hosts: Vec<String>,
    /// The longest file.
    pub bytes_max: ByteSize,
    /// The most pixels of a picture, known from its header before it is decoded.
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub pixels_max: u64,
    /// Media of one request.
    #[schemars(range(min = 0, max = 1024))]
    pub count_max: u32,
    /// How long fetching one address may take, redirects included.
    pub fetch_timeout: Span,
}

impl Default for MediaLimits {
    fn default() -> Self {
        Self {
            allowed_hosts: Vec::new(),
            bytes_max: ByteSize::mib(20),
            pixels_max: 40_000_000,
            count_max: 16,
            fetch_timeout: Span::from_s(10),
        }
    }
}

/// What happens after an instance died.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Restart {
    /// The wait before the first restart; doubled after each further one.
    pub backoff: Span,
    /// The longest wait.
    pub backoff_max: Span,
    /// More restarts than this within `window` stop the cluster.
    #[schemars(range(min = 0, max = 10_000))]
    pub max_restarts: u32,
    /// The time in which restarts are counted.
    pub window: Span,
}

impl Default for Restart {
    fn default() -> Self {
        Self {
            backoff: Span::from_ms(100),
            backoff_max: Span::from_s(10),
            max_restarts: 10,
            window: Span::from_s(60),
        }
    }
}
