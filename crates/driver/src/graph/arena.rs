//! Memory of a run on the host.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use tessera_plan::ALIGN;

/// Memory that is freed with its owner.
pub struct Block {
    at: NonNull<u8>,
    layout: Layout,
}

// SAFETY: plain memory that its owner hands out.
unsafe impl Send for Block {}
unsafe impl Sync for Block {}

impl Block {
    /// `None` where there is not so much memory.
    pub fn new(bytes: usize) -> Option<Self> {
        let layout = Layout::from_size_align(bytes.max(ALIGN), ALIGN).ok()?;
        // SAFETY: the size is not zero.
        let at = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Self { at, layout })
    }

    pub fn address(&self) -> *mut u8 {
        self.at.as_ptr()
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: made with this layout.
        unsafe { dealloc(self.at.as_ptr(), self.layout) }
    }
}
