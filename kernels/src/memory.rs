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

/// Owned bytes at a 64-byte boundary. Pages that nobody has written stay unbacked: the allocation itself asks for no more
/// than the allocator's own alignment, because zeroed memory of a larger one would be written through.
pub(crate) struct AlignedBytes {
    start: NonNull<u8>,
    len: usize,
    allocation: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the memory is owned by this value alone and holds plain bytes.
unsafe impl Send for AlignedBytes {}
// SAFETY: shared access only reads.
unsafe impl Sync for AlignedBytes {}

impl AlignedBytes {
    /// `len` zero bytes.
    pub(crate) fn zeroed(len: usize) -> Result<Self, KernelError> {
        let layout = len
            .checked_add(LINE)
            .and_then(|padded| Layout::from_size_align(padded, 1).ok());
        let layout = layout.ok_or(KernelError::Memory(len))?;
        // SAFETY: the layout's size is not zero.
        let allocation = unsafe { alloc_zeroed(layout) };
        let allocation = NonNull::new(allocation).ok_or(KernelError::Memory(len))?;
        let offset = allocation.align_offset(LINE);
        assert!(offset < LINE, "a byte pointer can be aligned");
        // SAFETY: the allocation is a line longer than `len`, so `len` bytes follow the next boundary.
        let start = unsafe { allocation.add(offset) };
        Ok(Self {
            start,
            len,
            allocation,
            layout,
        })
    }
}

impl std::ops::Deref for AlignedBytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `start` points to `len` initialised bytes owned by `self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl std::ops::DerefMut for AlignedBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` excludes other references.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for AlignedBytes {
    fn drop(&mut self) {
        // SAFETY: allocated in `zeroed` with this layout and not freed before.
        unsafe { dealloc(self.allocation.as_ptr(), self.layout) }
    }
}
