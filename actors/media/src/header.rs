//! What a picture's file says about itself before it is decoded.

mod exif;
mod gif;
mod jpeg;
mod png;
mod webp;

use std::fmt;

pub(crate) use exif::Orientation;
pub(crate) use jpeg::has_end as jpeg_has_end;

use crate::MediaError;

/// File formats, by their signatures. What a client claims a file to be plays no part.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Format {
    /// Portable Network Graphics, moving ones too.
    Png,
    /// JPEG, sequential or progressive.
    Jpeg,
    /// WebP, with or without loss, moving ones too.
    Webp,
    /// GIF 87a and 89a.
    Gif,
    /// RIFF WAVE.
    Wav,
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Format::Png => "PNG",
            Format::Jpeg => "JPEG",
            Format::Webp => "WebP",
            Format::Gif => "GIF",
            Format::Wav => "WAV",
        })
    }
}

/// What a picture claims to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Probe {
    /// By its signature.
    pub format: Format,
    /// Pixels of a row, once upright.
    pub width: u32,
    /// Rows, once upright.
    pub height: u32,
    /// One, unless it moves.
    pub frames: u32,
    pub(crate) orientation: Orientation,
}

/// A header as its format's reader found it.
struct Header {
    width: u32,
    height: u32,
    frames: u32,
    orientation: Orientation,
}

/// The format of a file's first bytes.
pub(crate) fn format_of(bytes: &[u8]) -> Option<Format> {
    match bytes {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some(Format::Png),
        [0xff, 0xd8, 0xff, ..] => Some(Format::Jpeg),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some(Format::Webp),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'A', b'V', b'E', ..] => Some(Format::Wav),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some(Format::Gif),
        _ => None,
    }
}

/// Reads a picture's headers: no pixel is decoded, nothing is allocated that grows with the file.
pub fn probe(bytes: &[u8]) -> Result<Probe, MediaError> {
    let format = format_of(bytes).ok_or(MediaError::UnknownPicture)?;
    let header = match format {
        Format::Png => png::header(bytes),
        Format::Jpeg => jpeg::header(bytes),
        Format::Webp => webp::header(bytes),
        Format::Gif => gif::header(bytes),
        Format::Wav => return Err(MediaError::UnknownPicture),
    };
    let header = header.ok_or_else(|| MediaError::damaged(format, "its header is cut short or wrong"))?;
    if header.width == 0 || header.height == 0 {
        return Err(MediaError::damaged(format, "it has no pixels"));
    }
    let (width, height) = header.orientation.upright_size(header.width, header.height);
    Ok(Probe {
        format,
        width,
        height,
        frames: header.frames,
        orientation: header.orientation,
    })
}

#[cfg(test)]
mod tests;
