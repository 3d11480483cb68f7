//! Reading numbers from a file: every read is checked, none panics.

/// A place in a file.
#[derive(Clone, Copy)]
pub(crate) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The next `count` bytes; none at the end of the file.
    pub(crate) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(head)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        self.array().map(|[byte]| byte)
    }

    pub(crate) fn u16_le(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u16_be(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u24_le(&mut self) -> Option<u32> {
        self.array().map(|[a, b, c]| u32::from_le_bytes([a, b, c, 0]))
    }

    pub(crate) fn u32_le(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u32_be(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn tag(&mut self) -> Option<[u8; 4]> {
        self.array()
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

/// The chunks of a RIFF file after its form type: tag and content. A chunk that is cut short ends the list with what
/// there is of it.
pub(crate) fn riff_chunks(body: &[u8]) -> impl Iterator<Item = ([u8; 4], &[u8])> {
    let mut cursor = Cursor::new(body);
    std::iter::from_fn(move || {
        let tag = cursor.tag()?;
        let len = cursor.u32_le()? as usize;
        let len_here = len.min(cursor.rest().len());
        let content = cursor.take(len_here)?;
        if len % 2 == 1 {
            cursor.byte();
        }
        Some((tag, content))
    })
}
