//! Global memory: ranges of the host's own memory that a kernel may access.

use super::fault::{FaultKind, Res, Trouble};
use std::cell::Cell;
use std::marker::PhantomData;

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Range {
    base: u64,
    end: u64,
    writable: bool,
}

/// The host memory that a kernel may read and write. Addresses are the host's.
#[derive(Clone, Default, Debug)]
pub struct Memory<'a> {
    ranges: Vec<Range>,
    /// The range that was hit last: the next access mostly hits it again.
    last: Cell<usize>,
    borrowed: PhantomData<&'a mut [u8]>,
}

impl<'a> Memory<'a> {
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets kernels read `len` bytes from `base` on, and write them if `writable`.
    ///
    /// # Safety
    /// The bytes must be valid to read, and to write if `writable`, whenever a kernel runs with this
    /// memory, and nothing else may use them meanwhile.
    pub unsafe fn allow(&mut self, base: *const u8, len: usize, writable: bool) {
        let base = base as u64;
        self.ranges.push(Range { base, end: base + len as u64, writable });
    }

    /// Lets kernels read a slice. Its address is what the kernel's argument holds.
    pub fn share<T: Copy>(&mut self, data: &'a [T]) -> u64 {
        // SAFETY: the borrow lasts as long as `self`, and the range is not writable.
        unsafe { self.allow(data.as_ptr().cast(), size_of_val(data), false) };
        data.as_ptr() as u64
    }

    /// Lets kernels read and write a slice of plain numbers.
    pub fn lend<T: Plain>(&mut self, data: &'a mut [T]) -> u64 {
        // SAFETY: the exclusive borrow lasts as long as `self`; any bits are a `Plain`.
        unsafe { self.allow(data.as_ptr().cast(), size_of_val(data), true) };
        data.as_mut_ptr() as u64
    }

    /// Checks that `len` bytes at `address` may be used.
    #[inline(always)]
    pub(super) fn check(&self, address: u64, len: u64, write: bool) -> Res<()> {
        if let Some(r) = self.ranges.get(self.last.get())
            && address >= r.base
            && address.saturating_add(len) <= r.end
            && (r.writable || !write)
            && address & (len - 1) == 0
        {
            return Ok(());
        }
        self.check_slowly(address, len, write)
    }

    /// Checks a byte run of any length and alignment.
    pub(super) fn check_run(&self, address: u64, len: u64, write: bool) -> Res<()> {
        let inside = |r: &Range| {
            address >= r.base
                && address.checked_add(len).is_some_and(|e| e <= r.end)
                && (r.writable || !write)
        };
        if self.ranges.iter().any(inside) {
            return Ok(());
        }
        // It names the reason.
        self.check_slowly(address, len, write)
    }

    #[cold]
    fn check_slowly(&self, address: u64, len: u64, write: bool) -> Res<()> {
        let what = if write { "write" } else { "read" };
        let inside =
            |r: &Range| address >= r.base && address.checked_add(len).is_some_and(|e| e <= r.end);
        let hit = self.ranges.iter().position(|r| inside(r) && (r.writable || !write));
        match hit {
            Some(i) if len.is_power_of_two() && address & (len - 1) != 0 => {
                Err(Trouble::new(
                    FaultKind::Misaligned,
                    format!("a {what} of {len} bytes at global address {address:#x}, which is not a multiple of {len}"),
                )
                .address(address)
                .note(self.describe(i, address)))
            }
            Some(i) => {
                self.last.set(i);
                Ok(())
            }
            None if self.ranges.iter().any(inside) => Err(Trouble::new(
                FaultKind::ReadOnly,
                format!("a write of {len} bytes at global address {address:#x}, which is read-only"),
            )
            .address(address)),
            None => {
                let trouble = Trouble::new(
                    FaultKind::OutOfBounds,
                    format!("a {what} of {len} bytes at global address {address:#x}, outside what the kernel was given"),
                )
                .address(address);
                let gap = |r: &Range| {
                    if address < r.base { r.base - address } else { address.saturating_sub(r.end) }
                };
                let near = (0..self.ranges.len()).min_by_key(|i| gap(&self.ranges[*i]));
                Err(match near {
                    Some(i) => trouble.note(self.describe(i, address)),
                    None => trouble.note("the kernel was given no memory"),
                })
            }
        }
    }

    fn describe(&self, i: usize, address: u64) -> String {
        let Range { base, end, .. } = self.ranges[i];
        let len = end - base;
        let offset = address as i128 - base as i128;
        format!("range {i} has {len} bytes from {base:#x} on; this is byte {offset} of it")
    }

    /// The bytes at an address that [`Self::check`] accepted.
    #[inline(always)]
    pub(super) fn read<const N: usize>(&self, address: u64) -> [u8; N] {
        // SAFETY: `check` found all N bytes in a range that the caller of `allow` vouched for.
        unsafe { std::ptr::read_unaligned(address as *const [u8; N]) }
    }

    #[inline(always)]
    pub(super) fn write<const N: usize>(&self, address: u64, bytes: [u8; N]) {
        // SAFETY: as in `read`, and the range is writable.
        unsafe { std::ptr::write_unaligned(address as *mut [u8; N], bytes) }
    }

    /// Up to 8 bytes at an address, checked.
    #[inline(always)]
    pub(super) fn load(&self, address: u64, bytes: u32) -> Res<u64> {
        self.check(address, bytes as u64, false)?;
        Ok(match bytes {
            1 => self.read::<1>(address)[0] as u64,
            2 => u16::from_le_bytes(self.read(address)) as u64,
            4 => u32::from_le_bytes(self.read(address)) as u64,
            _ => u64::from_le_bytes(self.read(address)),
        })
    }

    #[inline(always)]
    pub(super) fn store(&self, address: u64, bytes: u32, value: u64) -> Res<()> {
        self.check(address, bytes as u64, true)?;
        match bytes {
            1 => self.write(address, [value as u8]),
            2 => self.write(address, (value as u16).to_le_bytes()),
            4 => self.write(address, (value as u32).to_le_bytes()),
            _ => self.write(address, value.to_le_bytes()),
        }
        Ok(())
    }
}

/// Types for which every bit pattern is valid.
pub trait Plain: Copy {}
macro_rules! plain {
    ($($t:ty)*) => { $(impl Plain for $t {})* };
}
plain!(u8 u16 u32 u64 i8 i16 i32 i64 f32 f64);
