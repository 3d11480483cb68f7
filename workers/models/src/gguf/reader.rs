//! Reads little-endian numbers and strings from a file, checking every length first.

use super::GgufError;

pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at }
    }

    /// Where in the file the next byte lies.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// The whole file.
    pub(super) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    pub(super) fn take(&mut self, len: u64) -> Result<&'a [u8], GgufError> {
        let rest = &self.bytes[self.at..];
        if len > rest.len() as u64 {
            return Err(GgufError::Truncated {
                at: self.at as u64,
                need: len,
                have: rest.len() as u64,
            });
        }
        self.at += len as usize;
        Ok(&rest[..len as usize])
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], GgufError> {
        let bytes = self.take(N as u64)?;
        Ok(bytes.try_into().expect("take returns exactly the length asked for"))
    }

    pub(super) fn u32(&mut self) -> Result<u32, GgufError> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, GgufError> {
        self.array().map(u64::from_le_bytes)
    }

    /// A length in 64 bits and as many bytes of UTF-8.
    pub(super) fn string(&mut self) -> Result<&'a str, GgufError> {
        let len = self.u64()?;
        let at = self.at as u64;
        std::str::from_utf8(self.take(len)?).map_err(|_| GgufError::Utf8 { at })
    }
}
