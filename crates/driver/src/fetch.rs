//! Arrays of a device brought to the host for a launch that runs there: checked, watched, or on the
//! interpreter.

use crate::copies::room;
use crate::device;
use crate::pack::{packed_bytes, row_major};
use crate::specialise::Specialised;
use tessera_diag::Diagnostics;
use tessera_target::{ArgValue, BufferArg, LaunchArgs, Queue};

/// The copies, to which the arguments point until this goes.
pub struct Fetched {
    queue: Queue,
    items: Vec<Item>,
}

struct Item {
    there: BufferArg,
    here: Vec<u64>,
    written: bool,
}

impl Fetched {
    /// Puts copies in the place of all arrays, which are in use on this stream.
    pub fn of(
        spec: &Specialised,
        args: &mut LaunchArgs,
        queue: Queue,
    ) -> Result<Self, Diagnostics> {
        let mut items = Vec::new();
        // Tables are on the host already.
        let own = args.params.len() - spec.tables.len();
        for (place, arg) in args.params.iter_mut().take(own).enumerate() {
            let ArgValue::Buffer(buffer) = arg else { continue };
            let bytes = packed_bytes(buffer);
            let mut here = room(bytes)?;
            device::read(buffer, queue, &mut as_bytes(&mut here)[..bytes])?;
            let there = buffer.clone();
            buffer.data = here.as_mut_ptr().cast();
            buffer.strides = row_major(&buffer.dims, buffer.dtype);
            items.push(Item { there, here, written: spec.privilege(place).writes() });
        }
        Ok(Self { queue, items })
    }

    /// Takes what was written back to the device.
    pub fn put_back(mut self) -> Result<(), Diagnostics> {
        for item in self.items.iter_mut().filter(|item| item.written) {
            let bytes = packed_bytes(&item.there);
            device::write(&item.there, self.queue, &as_bytes(&mut item.here)[..bytes])?;
        }
        device::synchronize(self.queue.device, Some(self.queue.stream))
    }
}

fn as_bytes(words: &mut [u64]) -> &mut [u8] {
    // SAFETY: words are bytes, eight each.
    unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), size_of_val(words)) }
}
