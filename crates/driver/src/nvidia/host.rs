//! Launches on arrays of the host: they are copied to the device, and what was written comes back.
//! The results are in the caller's memory when the launch returns.

use super::kernel::Kernel;
use crate::copies;
use crate::device::{self, Memory};
use crate::pack::{is_packed, packed_bytes, row_major, scatter};
use tessera_diag::Diagnostics;
use tessera_ir::{Privilege, Type};
use tessera_target::device::DeviceId;
use tessera_target::{ArgValue, Artifact, BufferArg, LaunchArgs, Queue};

/// An array of the host with its copy on the device.
struct Copied {
    host: BufferArg,
    memory: Memory,
    on_device: BufferArg,
    written: bool,
}

pub fn launch(kernel: &Kernel, args: &LaunchArgs, on: DeviceId) -> Result<(), Diagnostics> {
    let queue = Queue { device: on, stream: 0 };
    let mut copied = Vec::new();
    let mut there = args.clone();
    for (arg, &param) in there.params.iter_mut().zip(kernel.func.params()) {
        if let ArgValue::Buffer(buffer) = arg {
            let privilege = match kernel.func.ty(param) {
                Type::View { privilege, .. } => *privilege,
                _ => Privilege::Read,
            };
            let copy = Copied::new(buffer, privilege.writes(), queue)?;
            *arg = ArgValue::Buffer(copy.on_device.clone());
            copied.push(copy);
        }
    }
    kernel.enqueue(&there, queue)?;
    for copy in &copied {
        copy.memory.used_on(queue.stream);
    }
    copied.iter().filter(|copy| copy.written).try_for_each(|copy| copy.bring_back(queue))?;
    // What failed after the launch was put on the stream is reported here, not at a later call.
    device::synchronize(queue.device, Some(queue.stream))
}

impl Copied {
    fn new(host: &BufferArg, written: bool, queue: Queue) -> Result<Self, Diagnostics> {
        let bytes = packed_bytes(host);
        let memory = Memory::new(queue, bytes as u64)?;
        let on_device = BufferArg {
            data: memory.address() as *mut u8,
            strides: row_major(&host.dims, host.dtype),
            ..host.clone()
        };
        // What a kernel leaves alone keeps its contents, so that all are taken there.
        let mut packed = host.clone();
        let _kept = (!is_packed(host)).then(|| copies::copy(&mut packed)).transpose()?;
        if bytes > 0 {
            // SAFETY: the array, or its copy, is packed and has this number of bytes.
            let all = unsafe { std::slice::from_raw_parts(packed.data, bytes) };
            device::write(&on_device, queue, all)?;
        }
        Ok(Self { host: host.clone(), memory, on_device, written })
    }

    fn bring_back(&self, queue: Queue) -> Result<(), Diagnostics> {
        let bytes = packed_bytes(&self.host);
        if bytes == 0 {
            return Ok(());
        }
        if is_packed(&self.host) {
            // SAFETY: the caller lends the array, which may be written, for the launch.
            let all = unsafe { std::slice::from_raw_parts_mut(self.host.data, bytes) };
            return device::read(&self.on_device, queue, all);
        }
        let mut room = vec![0; bytes];
        device::read(&self.on_device, queue, &mut room)?;
        let BufferArg { data, dims, strides, dtype, .. } = &self.host;
        // SAFETY: as above; the positions are those of the caller's view.
        unsafe { scatter(*data, dims, strides, dtype.bytes(), room.as_ptr()) };
        Ok(())
    }
}
