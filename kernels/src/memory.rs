//! Zeroed memory that starts at a cache line, so that a vector load never straddles two.
#![expect(
    unsafe_code,
    reason = "the standard collections cannot promise alignment and untouched zero pages"
)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

use crate::KernelError;

/// Bytes of a cache line.
const LINE: usize = 64;

/// Owned bytes at a 64-byte boundary. Pages the system has not been asked to touch stay unbacked.
pub(crate) struct AlignedBytes {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the memory is owned by this value alone and holds plain bytes.
unsafe impl Send for AlignedBytes {}
// SAFETY: shared access only reads.
unsafe impl Sync for AlignedBytes {}

impl AlignedBytes {
    /// `len` zero bytes.
    pub(crate) fn zeroed(len: usize) -> Result<Self, KernelError> {
        let layout = Layout::from_size_align(len.max(LINE), LINE).map_err(|_| KernelError::Memory(len))?;
        // SAFETY: the layout's size is not zero.
        let start = unsafe { alloc_zeroed(layout) };
        let start = NonNull::new(start).ok_or(KernelError::Memory(len))?;
        Ok(Self { start, layout })
    }
}

impl std::ops::Deref for AlignedBytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `start` points to `layout.size()` initialised bytes owned by `self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.layout.size()) }
    }
}

impl std::ops::DerefMut for AlignedBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` excludes other references.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.layout.size()) }
    }
}

impl Drop for AlignedBytes {
    fn drop(&mut self) {
        // SAFETY: allocated in `zeroed` with this layout and not freed before.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}
