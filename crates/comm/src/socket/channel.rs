//! A channel of bytes from one process to another, in shared memory: one writer and one reader.
//!
//! ```text
//! 0    head: bytes that were ever written        written by the writer alone
//! 64   tail: bytes that were ever read           written by the reader alone
//! 128  starved: the writer waits for room        set by the writer, taken by the reader
//! 256  the data, a power of two of bytes; byte n is at n mod capacity
//! ```
//!
//! **Invariants.** `tail ≤ head ≤ tail + capacity`. Bytes `tail..head` belong to the reader, the others to the writer. Both numbers only grow,
//! and do not wrap in the life of a program. Each side keeps its own number in its own memory and never reads it back, so that a
//! process that writes elsewhere in the segment can make the other side see wrong bytes, and nothing worse: the other side's number is
//! checked before it is believed.
//!
//! **Order.** The writer copies bytes, then stores `head` with release; the reader loads `head` with acquire, then reads the bytes. The
//! reader is done with bytes before it stores `tail` with release, which the writer loads with acquire before it writes there again.
//!
//! **Sleeping.** A writer without room sets `starved` (sequentially consistent) and looks at `tail` again. The reader stores `tail`, then
//! takes `starved` (both sequentially consistent), and wakes the writer by its bell where it was set. Of the two stores one is first: the writer
//! sees the room, or the reader sees that it is needed. The reader's bell says that something was written (`segment.rs`).
//!
//! Writers publish whole frames, so a reader that sees the first byte of a frame has all of it.

use super::segment::{CHANNEL, Segment};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

struct End {
    /// Keeps the memory mapped.
    _segment: Arc<Segment>,
    base: *mut u8,
    capacity: u64,
}

// SAFETY: each end has one user at a time; what both use are atomics.
unsafe impl Send for End {}

impl End {
    fn of(segment: &Arc<Segment>, from: usize, to: usize) -> Self {
        let (base, capacity) = (segment.channel(from, to), segment.capacity() as u64);
        Self { _segment: segment.clone(), base, capacity }
    }

    fn head(&self) -> &AtomicU64 {
        // SAFETY: inside the channel and aligned; everybody uses it as an atomic.
        unsafe { AtomicU64::from_ptr(self.base.cast()) }
    }

    fn tail(&self) -> &AtomicU64 {
        // SAFETY: as above.
        unsafe { AtomicU64::from_ptr(self.base.add(64).cast()) }
    }

    fn starved(&self) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { AtomicU32::from_ptr(self.base.add(128).cast()) }
    }

    /// Where bytes are: one run, or two around the end.
    fn runs(&self, at: u64, len: usize) -> [(*mut u8, usize); 2] {
        let from = (at % self.capacity) as usize;
        let first = len.min(self.capacity as usize - from);
        let data = self.base.wrapping_add(CHANNEL);
        [(data.wrapping_add(from), first), (data, len - first)]
    }
}

/// The channel holds what no writer makes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Damaged;

pub struct Writer {
    end: End,
    head: u64,
    /// Written and not published.
    open: u64,
}

impl Writer {
    /// The only writer of this channel.
    pub fn of(segment: &Arc<Segment>, from: usize, to: usize) -> Self {
        Self { end: End::of(segment, from, to), head: 0, open: 0 }
    }

    pub fn capacity(&self) -> usize {
        self.end.capacity as usize
    }

    fn room(&self) -> Result<u64, Damaged> {
        let tail = self.end.tail().load(Ordering::SeqCst);
        let used = self.head.checked_sub(tail).filter(|n| *n <= self.end.capacity);
        used.map(|n| self.end.capacity - n).ok_or(Damaged)
    }

    /// Whether `bytes` fit now. Where they do not, the reader wakes this process by its bell when it has read some.
    pub fn has_room(&self, bytes: usize) -> Result<bool, Damaged> {
        if self.room()? >= bytes as u64 {
            return Ok(true);
        }
        self.end.starved().store(1, Ordering::SeqCst);
        Ok(self.room()? >= bytes as u64)
    }

    /// Writes bytes behind those that were written, for which there is room.
    pub fn write(&mut self, mut bytes: &[u8]) {
        assert!(self.open + bytes.len() as u64 <= self.end.capacity);
        let count = bytes.len() as u64;
        for (to, len) in self.end.runs(self.head + self.open, bytes.len()) {
            let (here, rest) = bytes.split_at(len);
            // SAFETY: the run is inside the channel, and the reader is done with it.
            unsafe { std::ptr::copy_nonoverlapping(here.as_ptr(), to, len) };
            bytes = rest;
        }
        self.open += count;
    }

    /// Leaves bytes as they are.
    pub fn skip(&mut self, bytes: usize) {
        self.open += bytes as u64;
    }

    /// Gives what was written to the reader.
    pub fn publish(&mut self) {
        self.head += std::mem::take(&mut self.open);
        self.end.head().store(self.head, Ordering::SeqCst);
    }

    /// Changes a bit of what is written and not published, so far from its beginning: a fault, for tests.
    pub fn damage(&mut self, at: u64) {
        let (to, _) = self.end.runs(self.head + at, 1)[0];
        // SAFETY: a byte of the channel that is the writer's.
        unsafe { *to ^= 4 };
    }
}

pub struct Reader {
    end: End,
    tail: u64,
}

impl Reader {
    /// The only reader of this channel.
    pub fn of(segment: &Arc<Segment>, from: usize, to: usize) -> Self {
        Self { end: End::of(segment, from, to), tail: 0 }
    }

    /// How many bytes are there.
    pub fn available(&self) -> Result<usize, Damaged> {
        let head = self.end.head().load(Ordering::SeqCst);
        let found = head.checked_sub(self.tail).filter(|n| *n <= self.end.capacity);
        found.map(|n| n as usize).ok_or(Damaged)
    }

    /// Bytes that are there, so far from the first: one run, or two. A writer that goes wrong may change them while they are read, so they
    /// are copied, and what is copied is checked.
    pub fn runs(&self, at: usize, len: usize) -> [(*const u8, usize); 2] {
        self.end.runs(self.tail + at as u64, len).map(|(from, n)| (from.cast_const(), n))
    }

    /// Copies bytes that are there.
    pub fn read(&self, at: usize, mut to: &mut [u8]) {
        for (from, len) in self.runs(at, to.len()) {
            let (here, rest) = std::mem::take(&mut to).split_at_mut(len);
            // SAFETY: the run is inside the channel and belongs to the reader.
            unsafe { std::ptr::copy_nonoverlapping(from, here.as_mut_ptr(), len) };
            to = rest;
        }
    }

    /// Gives bytes back. Whether the writer waits for room.
    pub fn release(&mut self, bytes: usize) -> bool {
        self.tail += bytes as u64;
        self.end.tail().store(self.tail, Ordering::SeqCst);
        self.end.starved().load(Ordering::SeqCst) != 0
            && self.end.starved().swap(0, Ordering::SeqCst) != 0
    }
}
