//! WebP: a RIFF file with one picture, or with an extended header and many.

use super::{Header, Orientation, exif};
use crate::bytes::{Cursor, riff_chunks};

pub(super) fn header(bytes: &[u8]) -> Option<Header> {
    let mut size = None;
    let mut frames = 0;
    let mut orientation = Orientation::default();
    for (tag, content) in riff_chunks(bytes.get(12..)?) {
        match &tag {
            b"VP8X" => size = Some(extended(content)?),
            // Readers make room for the picture they find, not for the one the extended header speaks of.
            b"VP8 " => size = Some(agreed(size, lossy(content)?)?),
            b"VP8L" => size = Some(agreed(size, lossless(content)?)?),
            b"ANMF" => frames += 1,
            b"EXIF" => orientation = exif::orientation(content),
            _ => {}
        }
    }
    let (width, height) = size?;
    Some(Header {
        width,
        height,
        frames: frames.max(1),
        orientation,
    })
}

/// The size of a picture that is all there is; none if the file said another one before.
fn agreed(declared: Option<(u32, u32)>, found: (u32, u32)) -> Option<(u32, u32)> {
    declared.is_none_or(|declared| declared == found).then_some(found)
}

/// Flags, three reserved bytes, then both sides less one.
fn extended(content: &[u8]) -> Option<(u32, u32)> {
    let mut cursor = Cursor::new(content.get(4..)?);
    Some((cursor.u24_le()? + 1, cursor.u24_le()? + 1))
}

/// A frame tag, a start code, then two sides of 14 bits.
fn lossy(content: &[u8]) -> Option<(u32, u32)> {
    let mut cursor = Cursor::new(content);
    cursor.take(3)?;
    if cursor.take(3)? != [0x9d, 0x01, 0x2a] {
        return None;
    }
    let mut side = || cursor.u16_le().map(|side| u32::from(side & 0x3fff));
    Some((side()?, side()?))
}

/// A signature byte, then both sides less one, 14 bits each.
fn lossless(content: &[u8]) -> Option<(u32, u32)> {
    let mut cursor = Cursor::new(content);
    if cursor.byte()? != 0x2f {
        return None;
    }
    let bits = cursor.u32_le()?;
    Some(((bits & 0x3fff) + 1, (bits >> 14 & 0x3fff) + 1))
}
