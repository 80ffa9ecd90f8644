//! Memory of results. A large block is mapped by itself, in huge pages where the system has them, and a few that were freed are
//! kept: the one freed last is given first, as its pages are mapped and partly in the caches. From the C library's heap, calls
//! of one function alternate between several addresses once the heap is fragmented, and blocks above 32 MiB are
//! mapped and cleared anew each time.
//!
//! Nothing waits here: where another thread holds the list, and in a child that was forked
//! meanwhile, memory comes from the operating system.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};

/// Blocks begin at a multiple of this.
const LINE: usize = 64;
/// Smaller ones are the C library's.
const LARGE: usize = 1 << 20;
const HUGE_PAGE: usize = 1 << 21;
/// A multiple of every system's page.
const PAGES: usize = 1 << 16;
/// Large blocks begin at one of this many lines of their first page, so that the same elements of several arrays are not all in
/// one set of a cache.
const COLOURS: usize = 16;
/// Bytes that are kept at most.
const KEEP: usize = 128 << 20;

/// What stands in the line before a block.
#[repr(C, align(64))]
struct Header {
    /// What the system gave.
    base: *mut u8,
    /// Bytes from there, 0 where the C library gave them.
    mapped: usize,
    /// Bytes of the block.
    room: usize,
}

const _: () = assert!(size_of::<Header>() == LINE);

/// Freed mappings, the last one last.
static KEPT: Mutex<Vec<Mapping>> = Mutex::new(Vec::new());

struct Mapping {
    base: *mut u8,
    bytes: usize,
    /// Bytes before the block.
    before: usize,
}

// SAFETY: nobody but the list has the address.
unsafe impl Send for Mapping {}

/// A block of at least `size` bytes, or null.
pub fn take(size: usize) -> *mut u8 {
    let Some(bytes) = size.checked_add(LINE * (1 + COLOURS)) else {
        return null_mut();
    };
    if size < LARGE {
        return from_heap(size);
    }
    // Sizes are rounded up by a sixteenth at most, so that results of nearly the same size share blocks.
    let step = bytes.checked_next_power_of_two().map(|above| (above / 32).max(PAGES));
    let Some(bytes) = step.and_then(|step| bytes.checked_next_multiple_of(step)) else {
        return null_mut();
    };
    let found = kept(bytes).or_else(|| map(bytes)).or_else(|| {
        release();
        map(bytes)
    });
    let Some(Mapping { base, bytes, before }) = found else {
        return null_mut();
    };
    // SAFETY: the mapping is longer than `before` by `size` bytes.
    unsafe { headed(base.add(before), Header { base, mapped: bytes, room: bytes - before }) }
}

/// # Safety
/// The block is of [`take`] or [`resize`], and nobody uses it any more.
pub unsafe fn give(block: *mut u8) {
    if block.is_null() {
        return;
    }
    // SAFETY: a header stands before each block, and says where it is from.
    unsafe {
        let Header { base, mapped, .. } = block.sub(LINE).cast::<Header>().read();
        if mapped == 0 {
            libc::free(base.cast());
        } else {
            let before = block.offset_from_unsigned(base);
            keep(Mapping { base, bytes: mapped, before });
        }
    }
}

/// # Safety
/// The block is of [`take`] or [`resize`]; where this gives one, nobody uses the old one any more.
pub unsafe fn resize(block: *mut u8, size: usize) -> *mut u8 {
    if block.is_null() {
        return take(size);
    }
    // SAFETY: as above; both blocks hold the bytes that are copied, and do not overlap.
    unsafe {
        let room = (*block.sub(LINE).cast::<Header>()).room;
        let new = take(size);
        if !new.is_null() {
            new.copy_from_nonoverlapping(block, room.min(size));
            give(block);
        }
        new
    }
}

/// How many mappings are kept, and their bytes.
pub fn held() -> (usize, usize) {
    list().map_or((0, 0), |kept| (kept.len(), total(&kept)))
}

fn from_heap(size: usize) -> *mut u8 {
    let mut base = null_mut();
    // SAFETY: the alignment is a power of two and a multiple of a pointer's size; the header's line is counted.
    unsafe {
        if libc::posix_memalign(&mut base, LINE, size + LINE) != 0 {
            return null_mut();
        }
        let base: *mut u8 = base.cast();
        headed(base.add(LINE), Header { base, mapped: 0, room: size })
    }
}

/// # Safety
/// The block begins at a line, and the line before it is free.
unsafe fn headed(block: *mut u8, header: Header) -> *mut u8 {
    // SAFETY: as the caller says.
    unsafe { block.sub(LINE).cast::<Header>().write(header) }
    block
}

fn list() -> Option<MutexGuard<'static, Vec<Mapping>>> {
    match KEPT.try_lock() {
        Ok(kept) => Some(kept),
        Err(TryLockError::Poisoned(kept)) => Some(kept.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

fn total(kept: &[Mapping]) -> usize {
    kept.iter().map(|m| m.bytes).sum()
}

fn kept(bytes: usize) -> Option<Mapping> {
    let mut kept = list()?;
    let at = kept.iter().rposition(|m| m.bytes == bytes)?;
    Some(kept.remove(at))
}

fn keep(mapping: Mapping) {
    let Some(mut kept) = list().filter(|_| mapping.bytes <= KEEP) else {
        return unmap(mapping);
    };
    kept.push(mapping);
    let mut excess = total(&kept).saturating_sub(KEEP);
    while excess > 0 {
        let oldest = kept.remove(0);
        excess = excess.saturating_sub(oldest.bytes);
        unmap(oldest);
    }
}

/// Gives what is kept back to the system.
fn release() {
    if let Some(mut kept) = list() {
        kept.drain(..).for_each(unmap);
    }
}

fn map(bytes: usize) -> Option<Mapping> {
    let huge = bytes >= 2 * HUGE_PAGE;
    let requested = if huge { bytes.checked_add(HUGE_PAGE)? } else { bytes };
    static COLOUR: AtomicUsize = AtomicUsize::new(0);
    let before = LINE * (1 + COLOUR.fetch_add(1, Ordering::Relaxed) % COLOURS);
    // SAFETY: a new private mapping; pages outside the returned part are unmapped immediately.
    unsafe {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let how = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let found = libc::mmap(null_mut(), requested, rights, how, -1, 0);
        if found == libc::MAP_FAILED {
            return None;
        }
        let found: *mut u8 = found.cast();
        if !huge {
            return Some(Mapping { base: found, bytes, before });
        }
        let skip = found.align_offset(HUGE_PAGE);
        let base = found.add(skip);
        if skip > 0 {
            libc::munmap(found.cast(), skip);
        }
        if skip < HUGE_PAGE {
            libc::munmap(base.add(bytes).cast(), HUGE_PAGE - skip);
        }
        #[cfg(target_os = "linux")]
        libc::madvise(base.cast(), bytes, libc::MADV_HUGEPAGE);
        Some(Mapping { base, bytes, before })
    }
}

fn unmap(mapping: Mapping) {
    // SAFETY: the mapping is whole and nobody else has it.
    unsafe {
        libc::munmap(mapping.base.cast(), mapping.bytes);
    }
}
