//! Scratch memory of a thread, kept between launches: to allocate it each time costs more than a
//! small kernel. Large scratch memory is in huge pages where the system has them, since packed
//! panels are read from end to end repeatedly.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cell::RefCell;

thread_local! {
    static ROOM: RefCell<Room> = const { RefCell::new(Room::EMPTY) };
}

struct Room {
    start: *mut u8,
    layout: Layout,
}

/// A cache line, which vectors are best aligned to.
const LINE: usize = 64;
/// A large page.
const PAGE: usize = 2 << 20;

impl Room {
    const EMPTY: Room = Room { start: std::ptr::null_mut(), layout: Layout::new::<()>() };

    /// `None` where there is not so much memory.
    fn new(bytes: u64) -> Option<Self> {
        let bytes = usize::try_from(bytes).ok()?;
        let align = if bytes >= PAGE / 2 { PAGE } else { LINE };
        let size = bytes.checked_next_multiple_of(align)?.max(align);
        let layout = Layout::from_size_align(size, align).ok()?;
        // SAFETY: the size is not zero.
        let start = unsafe { alloc_zeroed(layout) };
        if start.is_null() {
            return None;
        }
        #[cfg(target_os = "linux")]
        if align == PAGE {
            // SAFETY: the range is ours; the advice changes no contents, and its refusal nothing.
            unsafe { libc::madvise(start.cast(), size, libc::MADV_HUGEPAGE) };
        }
        Some(Self { start, layout })
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if !self.start.is_null() {
            // SAFETY: allocated with this layout.
            unsafe { dealloc(self.start, self.layout) }
        }
    }
}

/// Calls `f` with at least `bytes` bytes of this thread, aligned to a cache line; `None` where
/// memory runs out.
pub fn with_room<R>(bytes: u64, f: impl FnOnce(*mut u8) -> R) -> Option<R> {
    ROOM.with(|room| match room.try_borrow_mut() {
        Ok(mut room) => {
            if (room.layout.size() as u64) < bytes {
                // What was there goes first, so that both need not fit.
                *room = Room::EMPTY;
                *room = Room::new(bytes)?;
            }
            Some(f(room.start))
        }
        // A launch nested in a launch on one thread.
        Err(_) => {
            let own = Room::new(bytes)?;
            Some(f(own.start))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rooms_grow_nest_and_lie_on_lines() {
        for bytes in [1u64, 64, 4096, 3 << 20, 100] {
            with_room(bytes, |outer| {
                assert_eq!(outer as usize % LINE, 0);
                // SAFETY: this number of bytes was requested.
                unsafe { outer.write_bytes(7, bytes as usize) };
                with_room(bytes, |inner| assert_ne!(inner, outer)).unwrap();
            })
            .unwrap();
        }
    }

    #[test]
    fn too_much_is_reported_and_leaves_a_room_that_works() {
        assert!(with_room(1 << 60, |_| ()).is_none());
        assert!(with_room(u64::MAX, |_| ()).is_none());
        assert!(with_room(100, |start| start.is_null()) == Some(false));
    }
}
