//! Why a file is not taken, in words for the client that sent it.

use crate::Format;

/// What is wrong with a file. All of it is the sender's to mend.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MediaError {
    /// No known signature.
    #[error("is not a picture this server reads; send PNG, JPEG, WebP or GIF")]
    UnknownPicture,
    /// No known signature.
    #[error("is not a sound this server reads; send WAV")]
    UnknownSound,
    /// More bytes than allowed.
    #[error("{bytes} bytes are too many; at most {max}")]
    Bytes {
        /// Bytes of the file.
        bytes: u64,
        /// The limit.
        max: u64,
    },
    /// More pixels than allowed.
    #[error("{width} x {height} pixels are too many; at most {max} in all")]
    Pixels {
        /// Pixels of a row.
        width: u32,
        /// Rows.
        height: u32,
        /// The limit on their product.
        max: u64,
    },
    /// More frames than allowed.
    #[error("{frames} frames are too many; at most {max}")]
    Frames {
        /// Frames, or one more than the limit if nobody counted further.
        frames: u32,
        /// The limit.
        max: u32,
    },
    /// A longer sound than allowed.
    #[error("{seconds} s of sound are too many; at most {max}")]
    Seconds {
        /// Whole seconds, rounded up.
        seconds: u64,
        /// The limit.
        max: u32,
    },
    /// The file contradicts its own format.
    #[error("is a damaged {format} file: {reason}")]
    Damaged {
        /// What the signature says.
        format: Format,
        /// What is wrong with it.
        reason: String,
    },
    /// The file is right, but of a kind that is not read.
    #[error("is a {format} file of a kind this server does not read: {kind}")]
    Unsupported {
        /// What the signature says.
        format: Format,
        /// Which kind, and what to send instead.
        kind: String,
    },
}

impl MediaError {
    pub(crate) fn damaged(format: Format, reason: impl Into<String>) -> Self {
        MediaError::Damaged {
            format,
            reason: reason.into(),
        }
    }

    pub(crate) fn unsupported(format: Format, kind: impl Into<String>) -> Self {
        MediaError::Unsupported {
            format,
            kind: kind.into(),
        }
    }
}
