//! How much a file may hold.

use crate::{MediaError, Probe};

/// Bounds of one file. Compared with what its header claims, before anything is allocated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Bytes of the file.
    pub bytes_max: u64,
    /// Width times height of a picture. Decoding takes up to 11 bytes for each.
    pub pixels_max: u64,
    /// Frames of a picture that moves. Only the first is shown to the model.
    pub frames_max: u32,
    /// Length of a sound.
    pub seconds_max: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            bytes_max: 20 << 20,
            // What a good camera makes, far below what a bomb claims.
            pixels_max: 40_000_000,
            frames_max: 1000,
            seconds_max: 1800,
        }
    }
}

impl Limits {
    /// Refuses a file that is too long.
    pub fn check_bytes(&self, bytes: u64) -> Result<(), MediaError> {
        if bytes > self.bytes_max {
            let max = self.bytes_max;
            return Err(MediaError::Bytes { bytes, max });
        }
        Ok(())
    }

    /// Refuses a picture that would be too large.
    pub fn check_picture(&self, probe: &Probe) -> Result<(), MediaError> {
        let (width, height) = (probe.width, probe.height);
        if u64::from(width) * u64::from(height) > self.pixels_max {
            let max = self.pixels_max;
            return Err(MediaError::Pixels { width, height, max });
        }
        if probe.frames > self.frames_max {
            let (frames, max) = (probe.frames, self.frames_max);
            return Err(MediaError::Frames { frames, max });
        }
        Ok(())
    }
}
