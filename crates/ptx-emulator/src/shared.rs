//! Shared memory of a block, with the state of every byte.

use super::fault::{FaultKind, Res, Trouble};
use super::warp::POISON;

/// The byte was written.
pub(super) const WRITTEN: u8 = 1;
/// An asynchronous copy into the byte is in flight.
pub(super) const ARRIVING: u8 = 2;
/// An asynchronous copy from the byte is in flight.
pub(super) const LEAVING: u8 = 4;
/// The byte belongs to an mbarrier.
pub(super) const BARRIER: u8 = 8;
/// A thread wrote the byte and has not made it visible to the async proxy.
pub(super) const UNFENCED: u8 = 16;

pub(super) struct Shared {
    pub data: Vec<u8>,
    pub state: Vec<u8>,
}

impl Shared {
    pub fn new(bytes: u32) -> Self {
        let data = (0..bytes as usize).map(|i| POISON.to_le_bytes()[i % 8]).collect();
        Self { data, state: vec![0; bytes as usize] }
    }

    /// Checks bounds and alignment; `bytes` is a power of two.
    #[inline(always)]
    pub fn place(&self, offset: u64, bytes: u64) -> Res<usize> {
        if offset & (bytes - 1) != 0 || offset + bytes > self.data.len() as u64 {
            return Err(self.misplaced(offset, bytes));
        }
        Ok(offset as usize)
    }

    /// Checks the bounds of a byte run.
    pub fn inside(&self, at: usize, bytes: usize) -> Res<()> {
        if at + bytes > self.data.len() {
            return Err(self.misplaced(at as u64, bytes as u64));
        }
        Ok(())
    }

    #[cold]
    fn misplaced(&self, offset: u64, bytes: u64) -> Box<Trouble> {
        let size = self.data.len();
        if offset + bytes > size as u64 {
            Trouble::new(
                FaultKind::OutOfBounds,
                format!("{bytes} bytes at shared address {offset:#x}, but the block has {size} bytes of shared memory"),
            )
        } else {
            Trouble::new(
                FaultKind::Misaligned,
                format!("{bytes} bytes at shared address {offset:#x}, which is not a multiple of {bytes}"),
            )
        }
        .address(offset)
    }

    /// Checks that bytes may be read.
    #[inline(always)]
    pub fn readable(&self, at: usize, bytes: usize) -> Res<()> {
        let wrong = BARRIER | ARRIVING | WRITTEN;
        if self.state[at..at + bytes].iter().all(|s| s & wrong == WRITTEN) {
            return Ok(());
        }
        Err(self.unreadable(at, bytes))
    }

    #[cold]
    fn unreadable(&self, at: usize, bytes: usize) -> Box<Trouble> {
        let states = &self.state[at..at + bytes];
        let bad = states.iter().position(|s| s & (BARRIER | ARRIVING | WRITTEN) != WRITTEN);
        let bad = at + bad.unwrap_or(0);
        let state = self.state[bad];
        let (kind, text) = if state & ARRIVING != 0 {
            (FaultKind::InFlight, "while a copy into it is in flight and was not waited for")
        } else if state & BARRIER != 0 {
            (FaultKind::Invalid, "which belongs to an mbarrier")
        } else {
            (FaultKind::Uninitialised, "which nothing has written")
        };
        Trouble::new(kind, format!("a read of shared byte {bad:#x}, {text}")).address(bad as u64)
    }

    /// Checks that bytes may be written.
    #[inline(always)]
    pub fn writable(&self, at: usize, bytes: usize) -> Res<()> {
        let wrong = BARRIER | ARRIVING | LEAVING;
        if self.state[at..at + bytes].iter().all(|s| s & wrong == 0) {
            return Ok(());
        }
        Err(self.unwritable(at, bytes))
    }

    #[cold]
    fn unwritable(&self, at: usize, bytes: usize) -> Box<Trouble> {
        let wrong = BARRIER | ARRIVING | LEAVING;
        let bad = self.state[at..at + bytes].iter().position(|s| s & wrong != 0);
        let bad = at + bad.unwrap_or(0);
        let state = self.state[bad];
        let (kind, text) = if state & ARRIVING != 0 {
            (FaultKind::InFlight, "while a copy into it is in flight and was not waited for")
        } else if state & LEAVING != 0 {
            (FaultKind::InFlight, "while a copy from it is in flight and was not waited for")
        } else {
            (FaultKind::Invalid, "which belongs to an mbarrier")
        };
        Trouble::new(kind, format!("a write to shared byte {bad:#x}, {text}")).address(bad as u64)
    }

    /// Up to 8 bytes, checked.
    #[inline(always)]
    pub fn load(&self, at: usize, bytes: u32) -> u64 {
        let mut word = [0; 8];
        match bytes {
            4 => word[..4].copy_from_slice(&self.data[at..at + 4]),
            8 => word.copy_from_slice(&self.data[at..at + 8]),
            n => word[..n as usize].copy_from_slice(&self.data[at..at + n as usize]),
        }
        u64::from_le_bytes(word)
    }

    #[inline(always)]
    pub fn store(&mut self, at: usize, bytes: u32, value: u64) {
        let n = bytes as usize;
        let word = value.to_le_bytes();
        match n {
            4 => self.data[at..at + 4].copy_from_slice(&word[..4]),
            _ => self.data[at..at + n].copy_from_slice(&word[..n]),
        }
        self.state[at..at + n].iter_mut().for_each(|s| *s |= WRITTEN);
    }
}
