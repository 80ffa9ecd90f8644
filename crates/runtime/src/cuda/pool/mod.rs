//! The pool of device memory: freed blocks are kept and reused.

mod blocks;

pub(crate) use blocks::{Block, Blocks, Memory};

use super::context::Context;
use super::device::{self, Device};
use super::error::CudaError;
use super::event::Event;
use super::graph::Relaxed;
use super::stream::StreamRef;
use super::{driver, wait};
use std::fmt;
use std::sync::Arc;
use tessera_support::ForkLock;
use tessera_target::device::{MemoryInfo, PoolStats};

/// The memory of a device, as its driver gives it.
pub(crate) struct DeviceMemory {
    pub context: Context,
}

impl Memory for DeviceMemory {
    type Mark = Event;

    fn allocate(&self, bytes: u64) -> Result<u64, CudaError> {
        let _current = self.context.make_current()?;
        let _relaxed = Relaxed::begin(self.context.api);
        let mut address = 0;
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        // SAFETY: `address` is a place for one.
        unsafe { self.context.api.cuMemAlloc_v2(&mut address, bytes) }?;
        Ok(address)
    }

    fn release(&self, address: u64) {
        self.context.finally(|api| {
            let _relaxed = Relaxed::begin(api);
            // SAFETY: `allocate` gave it, and no work touches it any more.
            unsafe { api.cuMemFree_v2(address) }
        });
    }

    fn mark(&self, stream: StreamRef) -> Result<Event, CudaError> {
        stream.not_capturing(self.context.api, "a mark of the pool")?;
        let event = Event::ordering(self.context)?;
        event.record(stream)?;
        Ok(event)
    }

    fn is_past(&self, mark: &Event) -> bool {
        mark.is_past().unwrap_or(false)
    }

    fn settle(&self, stream: StreamRef) -> Result<bool, CudaError> {
        let _current = self.context.make_current()?;
        let api = self.context.api;
        if stream.is_capturing(api).unwrap_or(false) {
            return Ok(false);
        }
        let _relaxed = Relaxed::begin(api);
        // Another thread's default stream cannot be queried from here.
        if stream == StreamRef::PER_THREAD {
            // SAFETY: the context is current.
            return Ok(unsafe { api.cuCtxSynchronize() }.map(|()| true)?);
        }
        wait::until(|| stream.is_idle(api))?;
        Ok(true)
    }

    fn room(&self) -> Option<MemoryInfo> {
        device::memory(self.context).ok()
    }
}

/// The pool of a device.
#[derive(Copy, Clone)]
pub struct Pool<'a>(&'a Arc<Device>);

impl Device {
    pub fn pool(self: &Arc<Self>) -> Pool<'_> {
        Pool(self)
    }
}

impl Pool<'_> {
    /// At least `bytes` bytes, for work on `stream`, aligned to 256 bytes. Their contents are
    /// unspecified.
    pub fn alloc(self, bytes: u64, stream: StreamRef) -> Result<DeviceBuffer, CudaError> {
        let _current = self.0.make_current()?;
        // A block that a graph was recorded with would be given to others between its launches.
        stream.not_capturing(self.0.context.api, "allocating memory")?;
        let block = self.0.blocks.take(bytes, stream)?;
        let others = ForkLock::default();
        Ok(DeviceBuffer { device: self.0.clone(), block, bytes, stream, others })
    }

    /// Gives all that is not in use back to the device, and says how many bytes. Waits for the
    /// work that may touch it.
    pub fn trim(self) -> Result<u64, CudaError> {
        self.0.blocks.trim()
    }

    pub fn stats(self) -> PoolStats {
        self.0.blocks.stats()
    }
}

/// Memory of a device. It goes back to the pool when this is dropped, which may be before the work
/// that uses it is done: the pool keeps the order of the stream it was allocated on, and of those
/// it was said to be [used on](Self::used_on).
pub struct DeviceBuffer {
    device: Arc<Device>,
    block: Block,
    bytes: u64,
    stream: StreamRef,
    others: ForkLock<Vec<StreamRef>>,
}

impl DeviceBuffer {
    pub fn address(&self) -> u64 {
        self.block.address
    }

    /// As many as were requested.
    pub fn len(&self) -> u64 {
        self.bytes
    }

    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Says that work on another stream than that of its allocation uses it.
    pub fn used_on(&self, stream: StreamRef) {
        if stream != self.stream {
            let mut others = self.others.lock();
            if !others.contains(&stream) {
                others.push(stream);
            }
        }
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        // In a forked child the memory is the parent's.
        if driver::is_ours() {
            let others = std::mem::take(&mut *self.others.lock());
            self.device.blocks.give(self.block.clone(), &others);
        }
    }
}

impl fmt::Debug for DeviceBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (bytes, ordinal) = (self.bytes, self.device.ordinal());
        write!(f, "{bytes} bytes at {:#x} on cuda:{ordinal}", self.block.address)
    }
}
