//! The numbers the gateway works within, and what it takes from outside: the time and request ids.

use std::time::Duration;

use cluster_media::HostRules;
use cluster_messages::RequestId;

/// Limits and waiting times. Every one is stated in the answer that refuses on its account.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Requests between admission and last byte; the next one is refused at once.
    pub requests_max: usize,
    /// Open connections; the next one waits in the listener's queue.
    pub connections_max: usize,
    /// What a refused client is told to wait.
    pub retry_after_ms: u32,
    /// The longest a request may take.
    pub request_time: Duration,
    /// The longest a client may take to send a request's head, and to send nothing on a kept connection.
    pub head_time: Duration,
    /// The longest a client may take to send a request's body.
    pub body_time: Duration,
    /// The longest a client may leave sent bytes unread.
    pub stall_time: Duration,
    /// A stream that has nothing to say for this long says so.
    pub keep_alive: Duration,
    /// Bounds of the request's fields.
    pub limits: Limits,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            requests_max: 256,
            connections_max: 4096,
            retry_after_ms: 1000,
            request_time: Duration::from_secs(600),
            head_time: Duration::from_secs(75),
            body_time: Duration::from_secs(30),
            stall_time: Duration::from_secs(60),
            keep_alive: Duration::from_secs(15),
            limits: Limits::default(),
        }
    }
}

/// Bounds of the request's fields.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Bytes of a request's body.
    pub body_bytes_max: usize,
    /// Answers to one request (`n`).
    pub choices_max: u32,
    /// Stop strings; the API's own limit.
    pub stop_max: usize,
    /// Bytes of one stop string.
    pub stop_bytes_max: usize,
    /// Further stop tokens.
    pub stop_token_ids_max: usize,
    /// Entries of `logit_bias`.
    pub logit_bias_max: usize,
    /// Alternatives per token.
    pub top_logprobs_max: u8,
    /// Messages of a conversation.
    pub messages_max: usize,
    /// Pictures and sounds.
    pub media: MediaLimits,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes_max: 8 << 20,
            choices_max: 16,
            stop_max: 4,
            stop_bytes_max: 1024,
            stop_token_ids_max: 64,
            logit_bias_max: 1024,
            top_logprobs_max: 20,
            messages_max: 10_000,
            media: MediaLimits::default(),
        }
    }
}

/// Bounds of pictures and sounds in a request. `body_bytes_max` holds for those that come with it.
#[derive(Clone, Debug)]
pub struct MediaLimits {
    /// Hosts that files are fetched from; none by default.
    pub allowed_hosts: HostRules,
    /// Bytes of one file.
    pub bytes_max: u64,
    /// Width times height of one picture.
    pub pixels_max: u64,
    /// Frames of one picture; the first is used.
    pub frames_max: u32,
    /// Length of one sound.
    pub seconds_max: u32,
    /// Pictures and sounds of one request.
    pub count_max: usize,
    /// The longest fetching one file may take, redirects included.
    pub fetch_timeout: Duration,
    /// Files that are fetched at the same time, over all requests.
    pub fetches_max: usize,
    /// Bytes of all fetched files of one request.
    pub fetched_bytes_max: usize,
}

impl Default for MediaLimits {
    fn default() -> Self {
        let file = cluster_media::Limits::default();
        Self {
            allowed_hosts: HostRules::default(),
            bytes_max: file.bytes_max,
            pixels_max: file.pixels_max,
            frames_max: file.frames_max,
            seconds_max: file.seconds_max,
            count_max: 16,
            fetch_timeout: Duration::from_secs(10),
            fetches_max: 16,
            fetched_bytes_max: 64 << 20,
        }
    }
}

impl MediaLimits {
    pub(crate) fn of_file(&self) -> cluster_media::Limits {
        cluster_media::Limits {
            bytes_max: self.bytes_max,
            pixels_max: self.pixels_max,
            frames_max: self.frames_max,
            seconds_max: self.seconds_max,
        }
    }
}

/// Time and chance, as arguments.
pub trait Environment: Send + Sync + 'static {
    /// Milliseconds of the cluster clock, which deadlines are counted in.
    fn cluster_ms(&self) -> u64;

    /// Seconds since 1970, for `created`.
    fn unix_seconds(&self) -> u64;

    /// A new id. Must not repeat and should not be guessable.
    fn request_id(&self) -> RequestId;
}
