//! PNG: a signature, then chunks of length, tag, content and checksum.

use super::{Header, Orientation, exif};
use crate::bytes::Cursor;

pub(super) fn header(bytes: &[u8]) -> Option<Header> {
    let mut cursor = Cursor::new(bytes.get(8..)?);
    let (_len, tag) = (cursor.u32_be()?, cursor.tag()?);
    let mut header = Header {
        width: cursor.u32_be()?,
        height: cursor.u32_be()?,
        frames: 1,
        orientation: Orientation::default(),
    };
    // The format's own bound; sizes above it are no sizes.
    let is_size = |side: u32| side < 1 << 31;
    if &tag != b"IHDR" || !is_size(header.width) || !is_size(header.height) {
        return None;
    }
    // The rest of the first chunk and its checksum.
    cursor.take(9)?;
    while let Some((tag, content)) = chunk(&mut cursor) {
        match &tag {
            b"acTL" => header.frames = Cursor::new(content).u32_be()?.max(1),
            b"eXIf" => header.orientation = exif::orientation(content),
            b"IEND" => break,
            _ => {}
        }
    }
    Some(header)
}

fn chunk<'a>(cursor: &mut Cursor<'a>) -> Option<([u8; 4], &'a [u8])> {
    let len = cursor.u32_be()? as usize;
    let tag = cursor.tag()?;
    let content = cursor.take(len)?;
    cursor.take(4)?;
    Some((tag, content))
}
