//! The bytes of a file, mapped into memory. It does not know what they mean.
#![expect(
    unsafe_code,
    reason = "mapping a file is unsafe by nature; this module is the only place that does it"
)]

use std::{fs::File, io, ops::Deref, path::Path};

use memmap2::Mmap;

/// Read-only bytes that live as long as this value.
#[derive(Debug)]
pub(crate) enum Mapping {
    File(Mmap),
    Memory(Vec<u8>),
}

impl Mapping {
    /// Maps a file. Its pages are read when they are first looked at.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        if file.metadata()?.len() == 0 {
            return Ok(Mapping::Memory(Vec::new()));
        }
        // SAFETY: the map is private and read-only. A model file must not be changed in place while it is in use; the
        // artifact store upholds that by writing under another name and renaming. Weights are copied out of the map
        // while loading, so nothing depends on the file once a model runs.
        Ok(Mapping::File(unsafe { Mmap::map(&file) }?))
    }
}

impl Deref for Mapping {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Mapping::File(map) => map,
            Mapping::Memory(bytes) => bytes,
        }
    }
}
