//! Memory that takes part in collectives, and blocks in it.

use crate::crc32c;
use std::ops::Range;
use tessera_target::Queue;

/// Memory of one rank. It belongs to the collective from its start until it is complete or aborted.
#[derive(Copy, Clone, Debug)]
pub struct Memory {
    address: *mut u8,
    bytes: usize,
    queue: Option<Queue>,
}

// SAFETY: it is an address; who makes one promises that the memory may be used from any thread.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Nothing to send, or nothing to receive.
    pub const NONE: Self = Self { address: std::ptr::null_mut(), bytes: 0, queue: None };

    /// Host memory.
    ///
    /// # Safety
    /// Until the collective that it is given to is complete, or was aborted and the transport is gone, `address` has `bytes` bytes which
    /// any thread may read, and write where the collective receives into them; nothing else writes them, and nothing else reads what is
    /// received into.
    pub unsafe fn host(address: *mut u8, bytes: usize) -> Self {
        Self { address, bytes, queue: None }
    }

    /// Memory of a device; the collective is ordered with the work on the queue.
    ///
    /// # Safety
    /// As of [`Memory::host`], in the order of the queue.
    pub unsafe fn device(address: *mut u8, bytes: usize, queue: Queue) -> Self {
        Self { address, bytes, queue: Some(queue) }
    }

    pub fn address(&self) -> *mut u8 {
        self.address
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Where it is: a queue of a device, or host memory.
    pub fn queue(&self) -> Option<Queue> {
        self.queue
    }
}

/// Bytes of a memory: rows of one length at a stride. The elements of a block along one dim, in row-major order.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Piece {
    pub offset: usize,
    pub rows: usize,
    pub len: usize,
    pub stride: usize,
}

impl Piece {
    /// Contiguous bytes.
    pub fn contiguous(offset: usize, bytes: usize) -> Self {
        Self { offset, rows: 1, len: bytes, stride: bytes }
    }

    /// Positions `start..start + count` along a dim of a row-major array with elements of `item` bytes. A dim that the array has not
    /// gives the whole array.
    pub fn along(extents: &[usize], dim: usize, start: usize, count: usize, item: usize) -> Self {
        let Some(&extent) = extents.get(dim) else {
            return Self::contiguous(0, item * extents.iter().product::<usize>());
        };
        let rows = extents[..dim].iter().product();
        let inner = item * extents[dim + 1..].iter().product::<usize>();
        let (len, stride) = (count * inner, extent * inner);
        let made = Self { offset: start * inner, rows, len, stride };
        if made.len == stride || rows == 1 {
            return Self::contiguous(made.offset, rows * len);
        }
        made
    }

    pub fn bytes(&self) -> usize {
        self.rows * self.len
    }

    /// Whether it is in a memory of this many bytes.
    pub fn fits(&self, bytes: usize) -> bool {
        if self.bytes() == 0 {
            return true;
        }
        let last =
            (self.rows - 1).checked_mul(self.stride).and_then(|n| n.checked_add(self.offset));
        last.and_then(|n| n.checked_add(self.len)).is_some_and(|end| end <= bytes)
    }

    /// The contiguous runs of the bytes `from..to` of the piece: offset in the memory, and length.
    pub fn runs(&self, from: usize, to: usize) -> impl Iterator<Item = (usize, usize)> + use<> {
        let piece = *self;
        let mut at = from;
        std::iter::from_fn(move || {
            if at >= to {
                return None;
            }
            let (row, inside) = (at / piece.len, at % piece.len);
            let n = (piece.len - inside).min(to - at);
            at += n;
            Some((piece.offset + row * piece.stride + inside, n))
        })
    }
}

/// Calls with each contiguous run of some bytes of a piece, by address, which must be inside the memory.
pub fn runs(
    memory: &Memory,
    piece: &Piece,
    bytes: Range<usize>,
    mut with: impl FnMut(*mut u8, usize),
) {
    for (offset, len) in piece.runs(bytes.start, bytes.end) {
        // SAFETY: the piece is inside the memory.
        with(unsafe { memory.address().add(offset) }, len);
    }
}

pub fn checksum(memory: &Memory, piece: &Piece, bytes: Range<usize>) -> u32 {
    let mut sum = 0;
    runs(memory, piece, bytes, |address, len| {
        // SAFETY: nothing writes what a collective sends.
        sum = crc32c(sum, unsafe { std::slice::from_raw_parts(address, len) });
    });
    sum
}

/// Writes contiguous bytes to the same bytes of a piece.
pub fn put(from: &[u8], memory: &Memory, piece: &Piece, bytes: Range<usize>) {
    let mut rest = from;
    runs(memory, piece, bytes, |address, len| {
        let (here, after) = rest.split_at(len.min(rest.len()));
        rest = after;
        // SAFETY: what a collective receives into is its own, and `from` is none of it.
        unsafe { std::ptr::copy_nonoverlapping(here.as_ptr(), address, here.len()) }
    });
}

/// Copies bytes from one piece to another of the same size. They may be the same bytes.
pub fn copy(from: (&Memory, &Piece), to: (&Memory, &Piece), bytes: Range<usize>) {
    let mut targets = to.1.runs(bytes.start, bytes.end);
    let mut target = (0, 0);
    runs(from.0, from.1, bytes, |mut source, mut len| {
        while len > 0 {
            if target.1 == 0 {
                let Some(next) = targets.next() else { return };
                target = next;
            }
            let n = len.min(target.1);
            // SAFETY: both are inside their memories, which live until the collective is complete.
            unsafe {
                let there = to.0.address().add(target.0);
                if !std::ptr::eq(there, source) {
                    std::ptr::copy(source, there, n);
                }
                source = source.add(n);
            }
            target = (target.0 + n, target.1 - n);
            len -= n;
        }
    });
}

/// Fills a piece with zeros.
pub fn zero(memory: &Memory, piece: &Piece) {
    runs(memory, piece, 0..piece.bytes(), |address, len| {
        // SAFETY: what a collective receives into is its own.
        unsafe { std::ptr::write_bytes(address, 0, len) }
    });
}
