//! The one fact of a camera's notes that changes a picture: which way is up.

use crate::bytes::Cursor;

const ORIENTATION_TAG: u16 = 0x0112;
/// Entries of the first directory that are looked at.
const ENTRIES_MAX: u16 = 512;

/// How stored rows and columns become upright ones: transpose first, then mirror.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Orientation {
    /// Stored rows are upright columns.
    pub(crate) is_transposed: bool,
    pub(crate) mirrors_x: bool,
    pub(crate) mirrors_y: bool,
}

impl Orientation {
    /// The eight values of the TIFF tag; any other says nothing.
    pub(crate) fn from_tag(value: u16) -> Self {
        let (is_transposed, mirrors_x, mirrors_y) = match value {
            2 => (false, true, false),
            3 => (false, true, true),
            4 => (false, false, true),
            5 => (true, false, false),
            6 => (true, true, false),
            7 => (true, true, true),
            8 => (true, false, true),
            _ => (false, false, false),
        };
        Self {
            is_transposed,
            mirrors_x,
            mirrors_y,
        }
    }

    pub(crate) fn upright_size(self, width: u32, height: u32) -> (u32, u32) {
        if self.is_transposed {
            (height, width)
        } else {
            (width, height)
        }
    }
}

/// Reads a TIFF block, with or without the name in front. Notes that cannot be read leave the picture as it is stored.
pub(super) fn orientation(notes: &[u8]) -> Orientation {
    let tiff = notes.strip_prefix(b"Exif\0\0").unwrap_or(notes);
    tag(tiff).map(Orientation::from_tag).unwrap_or_default()
}

fn tag(tiff: &[u8]) -> Option<u16> {
    let is_little = match tiff.get(..4)? {
        [b'I', b'I', 42, 0] => true,
        [b'M', b'M', 0, 42] => false,
        _ => return None,
    };
    let u16 = |cursor: &mut Cursor<'_>| if is_little { cursor.u16_le() } else { cursor.u16_be() };
    let u32 = |cursor: &mut Cursor<'_>| if is_little { cursor.u32_le() } else { cursor.u32_be() };
    let offset = u32(&mut Cursor::new(&tiff[4..]))? as usize;
    let mut directory = Cursor::new(tiff.get(offset..)?);
    for _ in 0..u16(&mut directory)?.min(ENTRIES_MAX) {
        let mut entry = Cursor::new(directory.take(12)?);
        let (tag, _kind, _count) = (u16(&mut entry)?, u16(&mut entry)?, u32(&mut entry)?);
        if tag == ORIENTATION_TAG {
            return u16(&mut entry);
        }
    }
    None
}
