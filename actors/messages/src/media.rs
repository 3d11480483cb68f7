//! Pictures and sounds of a prompt: tokenizer → encoder, encoder → whoever computes the prompt.
//!
//! ```text
//!  tokenizer ──Encode (the file)──▶ encoder ──Encoded (a ticket)──▶ tokenizer ──Generation.media──▶ prefill
//!                                      ▲                                                              │
//!                                      └──────────── FetchFeatures ◀──────────────────────────────────┘
//! ```
//! The embeddings never pass through the tokenizer. The encoder owns them: it alone drops them, when it needs the room or
//! when it ends; who comes too late has them encoded again.

use std::fmt;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{Deadline, Header, InstanceRef};

/// What a medium is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MediumKind {
    /// A still picture.
    Image,
    /// A sound.
    Audio,
}

impl MediumKind {
    /// The lower-case name used in messages to people.
    pub const fn name(self) -> &'static str {
        match self {
            MediumKind::Image => "image",
            MediumKind::Audio => "audio",
        }
    }
}

impl fmt::Display for MediumKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A file as the client sent it, or as it was fetched for the client. Not decoded.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MediaFile {
    /// What it claims to be.
    pub kind: MediumKind,
    /// Its bytes.
    pub bytes: Bytes,
}

impl fmt::Debug for MediaFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MediaFile({}, {} bytes)", self.kind, self.bytes.len())
    }
}

/// Names the embeddings of a medium: a cryptographic hash over the file's bytes and the fingerprint of the model's media
/// part. Equal digests have equal embeddings, and share cached pages.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct MediumDigest(pub u128);

impl fmt::Debug for MediumDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Display for MediumDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// A medium in a prompt: its embeddings replace those of its placeholder tokens.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Medium {
    /// What it is.
    pub kind: MediumKind,
    /// Names its embeddings.
    pub digest: MediumDigest,
    /// The position of its first placeholder token.
    pub first: u32,
    /// How many placeholder tokens it has, at least one; they are consecutive.
    pub tokens: u32,
    /// Where its embeddings come from.
    pub source: MediumSource,
}

impl Medium {
    /// One past the position of its last placeholder token.
    pub const fn end(&self) -> u32 {
        self.first + self.tokens
    }
}

/// Where embeddings come from.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum MediumSource {
    /// An encoder holds them.
    Encoder(FeatureTicket),
    /// Whoever computes the prompt encodes the file itself.
    File(MediaFile),
}

/// The right to fetch embeddings from the encoder that holds them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FeatureTicket {
    /// Who holds them; in another life it does not.
    pub owner: InstanceRef,
    /// Until then they are kept whatever else needs room.
    pub deadline: Deadline,
}

/// Asks an encoder to have the embeddings of a medium ready.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Encode {
    /// Request, deadline, trace.
    pub header: Header,
    /// Names the embeddings.
    pub digest: MediumDigest,
    /// What to encode.
    pub file: MediaFile,
    /// How many rows must come out: as many as the prompt has placeholder tokens.
    pub tokens: u32,
}

/// What an encoder answers, once: the embeddings are there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Encoded {
    /// How to fetch them.
    pub ticket: FeatureTicket,
    /// Whether they were there already, or on their way for somebody else.
    pub was_cached: bool,
}

/// Asks an encoder for embeddings it holds.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FetchFeatures {
    /// Request, deadline, trace.
    pub header: Header,
    /// Names the embeddings.
    pub digest: MediumDigest,
}

/// Embeddings `[tokens, width]`, row after row, as little-endian 32-bit floats.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Features {
    /// Rows.
    pub tokens: u32,
    /// Numbers of a row: the model's width.
    pub width: u32,
    /// `tokens * width * 4` bytes.
    pub values: Bytes,
}

impl fmt::Debug for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Features({} x {})", self.tokens, self.width)
    }
}
