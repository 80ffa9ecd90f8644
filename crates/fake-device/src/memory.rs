//! Memory of the device: allocations at addresses that the host does not have, with who accessed them.

use crate::queue::Clock;
use std::collections::BTreeMap;
use tessera_diag::{Code, Diagnostic};
use tessera_target::device::DeviceError;

/// The first address: no pointer of a process is as large, so that a host read of one ends the process.
const FIRST: u64 = 0x00fa_0000_0000_0000;
/// Bytes of address space for each device.
const SPAN: u64 = 1 << 40;
/// What memory is aligned to, and the least distance between two allocations: reads beyond the end are found.
const ALIGN: u64 = 256;
/// What new memory holds: NaN in every float dtype, -1 in integers.
pub const POISON: u8 = 0xff;

pub struct Allocation {
    /// Whole words, so that the interpreter finds the alignment that the address has.
    words: Vec<u64>,
    pub bytes: u64,
    freed: bool,
    accesses: Vec<Access>,
}

/// One access to a part of an allocation: by which stream's which item.
struct Access {
    what: &'static str,
    from: u64,
    to: u64,
    writes: bool,
    stream: u64,
    number: u64,
}

pub struct Memory {
    allocations: BTreeMap<u64, Allocation>,
    next: u64,
    pub in_use: u64,
    pub peak: u64,
    pub count: u64,
}

/// A use of memory by an item of a stream.
#[derive(Clone, Debug)]
pub struct Use {
    pub what: &'static str,
    pub address: u64,
    pub bytes: u64,
    pub writes: bool,
}

/// The device that an address belongs to.
pub fn ordinal_of(address: u64) -> Option<u32> {
    u32::try_from(address.checked_sub(FIRST)? / SPAN).ok().filter(|&n| n < 1 << 14)
}

impl Memory {
    pub fn new(ordinal: u32) -> Self {
        let next = FIRST + u64::from(ordinal) * SPAN + ALIGN;
        Self { allocations: BTreeMap::new(), next, in_use: 0, peak: 0, count: 0 }
    }

    pub fn alloc(&mut self, bytes: u64, room: u64) -> Result<u64, DeviceError> {
        if self.in_use.checked_add(bytes).is_none_or(|all| all > room) {
            let message =
                format!("memory ran out on the fake device: {bytes} bytes were requested");
            let error = Diagnostic::new(Code::E_OOM, message);
            return Err(error.help("let go of arrays that are not needed").into());
        }
        let address = self.next;
        self.next += bytes.next_multiple_of(ALIGN) + ALIGN;
        let words = vec![u64::from_ne_bytes([POISON; 8]); bytes.div_ceil(8) as usize];
        let made = Allocation { words, bytes, freed: false, accesses: Vec::new() };
        self.allocations.insert(address, made);
        self.in_use += bytes;
        self.peak = self.peak.max(self.in_use);
        self.count += 1;
        Ok(address)
    }

    /// Frees it. It is kept as a grave until nothing of it can be in a queue.
    pub fn free(&mut self, address: u64) {
        if let Some(found) = self.allocations.get_mut(&address) {
            found.freed = true;
            found.words = Vec::new();
            self.in_use -= found.bytes;
        }
    }

    fn find(&mut self, address: u64, bytes: u64) -> Option<(u64, &mut Allocation)> {
        let (&base, found) = self.allocations.range_mut(..=address).next_back()?;
        (address - base + bytes <= found.bytes).then_some((base, found))
    }

    /// The bytes at an address, to run work on.
    pub fn at(&mut self, address: u64, bytes: u64) -> Result<*mut u8, DeviceError> {
        let (why, found) = match self.find(address, bytes) {
            None => ("is no memory of the device", None),
            Some((_, found)) if found.freed => ("was freed", None),
            Some((base, found)) => {
                let first = found.words.as_mut_ptr().cast::<u8>();
                ("", Some(first.wrapping_add((address - base) as usize)))
            }
        };
        found.ok_or_else(|| {
            let message = format!("work reached {bytes} bytes at {address:#x}, which {why}");
            let error = Diagnostic::new(Code::E_ILLEGAL_ADDRESS, message);
            DeviceError::lost(error.help("start the process anew"))
        })
    }

    /// Notes an access; gives what it conflicts with, where no wait orders the two.
    pub fn access(
        &mut self,
        r#use: &Use,
        stream: u64,
        number: u64,
        clock: &Clock,
    ) -> Option<String> {
        let Use { what, address, bytes, writes } = *r#use;
        let (base, found) = self.find(address, bytes)?;
        let (from, to) = (address - base, address - base + bytes);
        let overlaps = |a: &Access| a.from < to && from < a.to;
        let racing = found
            .accesses
            .iter()
            .find(|a| (a.writes || writes) && overlaps(a) && !clock.knows(a.stream, a.number));
        let report = racing.map(|a| {
            format!(
                "{what} on stream {stream} does not wait for {} on stream {}: bytes {} to {} at {base:#x}",
                a.what,
                a.stream,
                from.max(a.from),
                to.min(a.to)
            )
        });
        // What is ordered before a write over the same bytes needs no place any more.
        if writes {
            found
                .accesses
                .retain(|a| a.from < from || to < a.to || !clock.knows(a.stream, a.number));
        }
        found.accesses.push(Access { what, from, to, writes, stream, number });
        report
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_memory_and_addresses_outside_are_found() {
        let mut memory = Memory::new(3);
        let address = memory.alloc(100, 1 << 20).unwrap();
        assert_eq!(ordinal_of(address), Some(3));
        assert!(memory.at(address + 96, 4).is_ok());
        let codes = |result: Result<*mut u8, DeviceError>| result.err().map(|e| (e.code(), e.lost));
        assert_eq!(codes(memory.at(address + 97, 4)), Some((Code::E_ILLEGAL_ADDRESS, true)));
        assert_eq!(codes(memory.at(4096, 4)), Some((Code::E_ILLEGAL_ADDRESS, true)));
        memory.free(address);
        assert_eq!(codes(memory.at(address, 4)), Some((Code::E_ILLEGAL_ADDRESS, true)));
        assert_eq!(memory.in_use, 0);
        assert!(memory.alloc(1 << 20, 1 << 19).is_err());
    }
}
