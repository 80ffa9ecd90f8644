//! Memory in the place of arrays that a measured launch writes: with the same layout and alignment,
//! since speed depends on both.

use crate::device;
use crate::pack::{gather, packed_bytes, reach, scatter};
use tessera_diag::Diagnostics;
use tessera_target::{BufferArg, Queue};

/// Addresses are alike below this.
const ALIGN: u64 = 4096;

/// A copy of an array, which is the caller's and stays as it is. The memory goes when this does.
pub struct Copy {
    of: BufferArg,
    memory: Memory,
    /// Of the first element.
    address: u64,
}

enum Memory {
    /// The bytes that the elements lie in, and room to bring them there.
    Host {
        _bytes: Vec<u8>,
        packed: Vec<u8>,
    },
    Device {
        _memory: device::Memory,
        queue: Queue,
    },
}

impl Copy {
    /// Of an array in host memory, or on the device of a queue, after the queue's work so far.
    pub fn of(view: &BufferArg, queue: Option<Queue>) -> Result<Self, Diagnostics> {
        let (low, high) = reach(view);
        // Room to begin at any alignment.
        let bytes = (high - low) as u64 + ALIGN;
        let first = |base: u64| {
            let wanted = (view.data as u64).wrapping_add_signed(low) % ALIGN;
            (base + (wanted + ALIGN - base % ALIGN) % ALIGN).wrapping_add_signed(-low)
        };
        let (memory, address) = match queue {
            None => {
                let mut bytes = vec![0u8; bytes as usize];
                let address = first(bytes.as_mut_ptr() as u64);
                (Memory::Host { _bytes: bytes, packed: vec![0; packed_bytes(view)] }, address)
            }
            Some(queue) => {
                let memory = device::Memory::new(queue, bytes)?;
                let address = first(memory.address());
                (Memory::Device { _memory: memory, queue }, address)
            }
        };
        let mut copy = Self { of: view.clone(), memory, address };
        copy.renew()?;
        Ok(copy)
    }

    /// The address of the first element.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Puts in the elements of the array once more: a launch may depend on them, and the last one
    /// wrote others.
    pub fn renew(&mut self) -> Result<(), Diagnostics> {
        let BufferArg { data, dims, strides, dtype, .. } = &self.of;
        match &mut self.memory {
            Memory::Host { packed, .. } => {
                let (size, to) = (dtype.bytes(), self.address as *mut u8);
                // SAFETY: the positions are those of the caller's view; ours are the same ones in
                // memory that covers all of them.
                unsafe {
                    gather(*data, dims, strides, size, packed.as_mut_ptr());
                    scatter(to, dims, strides, size, packed.as_ptr());
                }
                Ok(())
            }
            Memory::Device { queue, .. } => {
                let (low, high) = reach(&self.of);
                if high == low {
                    return Ok(());
                }
                let from = (*data as u64).wrapping_add_signed(low);
                let to = self.address.wrapping_add_signed(low);
                device::copy_on_device(to, from, (high - low) as u64, *queue)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tessera_numerics::DType;

    #[test]
    fn a_copy_lies_as_the_array_does_and_can_be_renewed() {
        let mut x: Vec<i32> = (0..12).collect();
        let view = BufferArg {
            data: x.as_mut_ptr().wrapping_add(3).cast(),
            dims: vec![3, 2],
            strides: vec![16, -8],
            dtype: DType::I32,
            writable: true,
        };
        let mut copy = Copy::of(&view, None).unwrap();
        assert_eq!(copy.address() % ALIGN, view.data as u64 % ALIGN);
        for _ in 0..2 {
            for (i, expected) in [(0, 3), (1, 1), (2, 7), (3, 5), (4, 11), (5, 9)] {
                let at = copy.address().wrapping_add_signed(16 * (i / 2) - 8 * (i % 2));
                // SAFETY: a position of the copy.
                let element = unsafe { &mut *(at as *mut i32) };
                assert_eq!(*element, expected);
                *element = -1;
            }
            copy.renew().unwrap();
        }
        let empty = BufferArg { dims: vec![0, 2], ..view };
        assert!(Copy::of(&empty, None).is_ok());
    }
}
