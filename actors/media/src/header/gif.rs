//! GIF: a screen, then blocks: extensions and frames, each with its data in small pieces.

use super::{Header, Orientation};
use crate::bytes::Cursor;

pub(super) fn header(bytes: &[u8]) -> Option<Header> {
    let mut cursor = Cursor::new(bytes.get(6..)?);
    let (width, height) = (cursor.u16_le()?, cursor.u16_le()?);
    let flags = cursor.byte()?;
    cursor.take(2)?;
    skip_palette(&mut cursor, flags)?;
    let mut frames = 0;
    // A file that is cut short after its first frame still has that one.
    while let Some(is_frame) = block(&mut cursor) {
        frames += u32::from(is_frame);
    }
    Some(Header {
        width: width.into(),
        height: height.into(),
        frames: frames.max(1),
        orientation: Orientation::default(),
    })
}

/// Skips a block and says whether it was a frame; none at the end.
fn block(cursor: &mut Cursor<'_>) -> Option<bool> {
    match cursor.byte()? {
        b'!' => {
            cursor.byte()?;
            skip_pieces(cursor)?;
            Some(false)
        }
        b',' => {
            cursor.take(8)?;
            let flags = cursor.byte()?;
            skip_palette(cursor, flags)?;
            cursor.byte()?;
            skip_pieces(cursor)?;
            Some(true)
        }
        _ => None,
    }
}

fn skip_palette(cursor: &mut Cursor<'_>, flags: u8) -> Option<()> {
    if flags & 0x80 != 0 {
        cursor.take(3 << ((flags & 7) + 1))?;
    }
    Some(())
}

fn skip_pieces(cursor: &mut Cursor<'_>) -> Option<()> {
    loop {
        match cursor.byte()? {
            0 => return Some(()),
            len => cursor.take(len.into())?,
        };
    }
}
