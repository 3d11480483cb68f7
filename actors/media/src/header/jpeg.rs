//! JPEG: markers, most with a length and content; after the start of a scan, entropy-coded bytes.

use super::{Header, Orientation, exif};
use crate::bytes::Cursor;

const START_OF_SCAN: u8 = 0xda;
const NOTES: u8 = 0xe1;

/// Walks the segments before the first scan.
pub(super) fn header(bytes: &[u8]) -> Option<Header> {
    let mut orientation = Orientation::default();
    let mut size = None;
    for (marker, content) in segments(bytes) {
        match marker {
            NOTES if content.starts_with(b"Exif\0\0") => orientation = exif::orientation(content),
            // Every kind of frame; C4, C8 and CC in the same range are tables.
            0xc0..=0xcf if !matches!(marker, 0xc4 | 0xc8 | 0xcc) => {
                let mut frame = Cursor::new(content.get(1..)?);
                size = Some((frame.u16_be()?, frame.u16_be()?));
            }
            _ => {}
        }
    }
    let (height, width) = size?;
    Some(Header {
        width: width.into(),
        height: height.into(),
        frames: 1,
        orientation,
    })
}

/// The segments up to and with the first start of a scan.
fn segments(bytes: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    let mut cursor = Cursor::new(bytes.get(2..).unwrap_or_default());
    let mut is_over = false;
    std::iter::from_fn(move || {
        if is_over || cursor.byte()? != 0xff {
            return None;
        }
        let mut marker = cursor.byte()?;
        // Any number of fill bytes may stand before a marker.
        while marker == 0xff {
            marker = cursor.byte()?;
        }
        // No marker: a reader that passes over it would find other headers than this one.
        if marker == 0 {
            return None;
        }
        is_over = marker == START_OF_SCAN;
        let len = usize::from(cursor.u16_be()?).checked_sub(2)?;
        Some((marker, cursor.take(len)?))
    })
}

/// Whether the end marker follows the first scan. Decoders fill what is missing with grey; the model must not see that.
pub(crate) fn has_end(bytes: &[u8]) -> bool {
    let headers: usize = segments(bytes).map(|(_, content)| content.len() + 4).sum();
    let scans = bytes.get(headers..).unwrap_or_default();
    scans.windows(2).rev().any(|pair| pair == [0xff, 0xd9])
}
