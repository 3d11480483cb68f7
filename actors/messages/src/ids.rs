//! Identities. Every id has its own type; an instance is always named together with its epoch, so that a message for an
//! earlier life of an actor can be told from one for the present life.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// One request of one client, from the gateway to the last token. Printed as 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RequestId(pub u128);

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for RequestId {
    type Err = std::num::ParseIntError;

    /// Accepts the bare digits and the ids of the OpenAI API made from them (`chatcmpl-…`, `cmpl-…`).
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text.rsplit_once('-').map_or(text, |(_, digits)| digits);
        u128::from_str_radix(digits, 16).map(Self)
    }
}

/// What an instance does for a request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Renders templates, encodes and decodes text, matches stops; owns a request's stream towards the gateway.
    Tokenizer,
    /// Turns media into embeddings.
    Encoder,
    /// Computes the pages of a prompt.
    Prefill,
    /// Continues token by token. With prefill folded in it serves a request alone.
    Decode,
    /// Chooses the instances of a request.
    Router,
    /// Keeps pages below the accelerator's memory.
    Cache,
}

impl Role {
    /// All roles, in the order of the request path.
    pub const ALL: [Role; 6] = [
        Role::Tokenizer,
        Role::Router,
        Role::Encoder,
        Role::Prefill,
        Role::Decode,
        Role::Cache,
    ];

    /// The lower-case name used in topology files, paths and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Role::Tokenizer => "tokenizer",
            Role::Encoder => "encoder",
            Role::Prefill => "prefill",
            Role::Decode => "decode",
            Role::Router => "router",
            Role::Cache => "cache",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A string that does not name a role or an actor path.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("'{0}' is not an actor path such as decode.0")]
pub struct PathError(pub String);

impl FromStr for Role {
    type Err = PathError;

    fn from_str(text: &str) -> Result<Self, PathError> {
        Role::ALL
            .into_iter()
            .find(|role| role.name() == text)
            .ok_or_else(|| PathError(text.into()))
    }
}

/// The stable name of an actor inside a topology, such as `decode.3`. It outlives restarts; the epoch does not.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ActorPath {
    /// What the actor does.
    pub role: Role,
    /// Which replica it is, counted from 0.
    pub ordinal: u32,
}

impl ActorPath {
    /// The path of replica `ordinal` of `role`.
    pub const fn new(role: Role, ordinal: u32) -> Self {
        Self { role, ordinal }
    }
}

impl fmt::Display for ActorPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.role, self.ordinal)
    }
}

impl fmt::Debug for ActorPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for ActorPath {
    type Err = PathError;

    fn from_str(text: &str) -> Result<Self, PathError> {
        let wrong = || PathError(text.into());
        let (role, ordinal) = text.split_once('.').ok_or_else(wrong)?;
        Ok(Self {
            role: role.parse()?,
            ordinal: ordinal.parse().map_err(|_| wrong())?,
        })
    }
}

/// One life of an actor. A restarted actor has a higher epoch; receivers refuse what carries a lower one than they know.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct Epoch(pub u64);

/// An actor in one of its lives: whom a frame, a reservation or an event belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct InstanceRef {
    /// Which actor.
    pub path: ActorPath,
    /// Which of its lives.
    pub epoch: Epoch,
}

impl fmt::Display for InstanceRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.path, self.epoch.0)
    }
}

impl fmt::Debug for InstanceRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A machine that hosts instances.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct NodeId(pub String);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The moment after which nobody waits for the answer, in milliseconds of the cluster clock (`cluster-fabric::Clock`).
/// A carrier between machines sends the time left and rebuilds the deadline on its own clock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Deadline(pub u64);

/// The W3C trace context of the sender. Empty when nothing is traced.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct TraceContext {
    /// `traceparent`, version 00.
    pub traceparent: String,
}

/// What every message of the request path carries.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Header {
    /// The request this message is part of.
    pub request: RequestId,
    /// When its client stops waiting.
    pub deadline: Deadline,
    /// The span that sent it.
    pub trace: TraceContext,
}
