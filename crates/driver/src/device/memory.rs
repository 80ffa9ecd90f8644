//! Memory of devices, with the stream of the last work on it.

use super::{open, recording};
use std::sync::atomic::{AtomicU64, Ordering};
use tessera_diag::Diagnostics;
use tessera_target::Queue;
use tessera_target::device::{self as hal, DeviceId};

/// Memory of a device's pool, or memory lent by another owner.
pub struct Memory {
    held: Held,
    /// The stream of the last work on it.
    last: AtomicU64,
}

enum Held {
    Own(Box<dyn hal::Memory>),
    Lent { address: u64, device: DeviceId, bytes: u64 },
}

impl Memory {
    pub fn new(queue: Queue, bytes: u64) -> Result<Self, Diagnostics> {
        let memory = open(queue.device)?.alloc(bytes, queue.stream)?;
        Ok(Self { held: Held::Own(memory), last: AtomicU64::new(queue.stream) })
    }

    /// Memory whose owner keeps it, and what is done with it in the order of the queue.
    pub fn lent(address: u64, bytes: u64, queue: Queue) -> Self {
        let held = Held::Lent { address, device: queue.device, bytes };
        Self { held, last: AtomicU64::new(queue.stream) }
    }

    pub fn address(&self) -> u64 {
        match &self.held {
            Held::Own(memory) => memory.address(),
            Held::Lent { address, .. } => *address,
        }
    }

    pub fn device(&self) -> DeviceId {
        match &self.held {
            Held::Own(memory) => memory.device(),
            Held::Lent { device, .. } => *device,
        }
    }

    fn bytes(&self) -> u64 {
        match &self.held {
            Held::Own(memory) => memory.bytes(),
            Held::Lent { bytes, .. } => *bytes,
        }
    }

    /// The stream whose work so far must be over before another uses it.
    pub fn last(&self) -> u64 {
        self.last.load(Ordering::Acquire)
    }

    /// Says that work on this stream uses it.
    pub fn used_on(&self, on: u64) {
        if self.last() != on
            && self.last.swap(on, Ordering::AcqRel) != on
            && let Held::Own(memory) = &self.held
        {
            memory.used_on(on);
        }
    }

    /// Sets every byte.
    pub fn fill(&self, value: u8, on: u64) -> Result<(), Diagnostics> {
        self.used_on(on);
        let device = open(self.device())?;
        // SAFETY: the pool keeps the memory for the stream, or the owner who lends it does.
        Ok(unsafe { device.fill(self.address(), value, self.bytes(), on) }?)
    }
}

/// Launches with memory for this one launch, whose address `launch` gets. It is zero when the launch begins, also each
/// time that a recorded one is done again.
pub fn with_context(
    queue: Queue,
    bytes: u64,
    launch: impl FnOnce(u64) -> Result<(), Diagnostics>,
) -> Result<(), Diagnostics> {
    with_memory(queue, bytes, |address| {
        let device = open(queue.device)?;
        // SAFETY: as many bytes were allocated, and the pool keeps them for the stream.
        unsafe { device.fill(address, 0, bytes, queue.stream) }?;
        launch(address)
    })
}

/// The same with memory that holds anything.
pub fn with_memory(
    queue: Queue,
    bytes: u64,
    launch: impl FnOnce(u64) -> Result<(), Diagnostics>,
) -> Result<(), Diagnostics> {
    let device = open(queue.device)?;
    // SAFETY: the library that owns the stream keeps it for the call.
    unsafe { device.check_stream(queue.stream) }?;
    let captured = device.is_capturing(queue.stream)?;
    // The pool has no order of work on a stream that is recorded.
    let home = if captured { 0 } else { queue.stream };
    let memory = device.clone().alloc(bytes, home)?;
    memory.used_on(queue.stream);
    launch(memory.address())?;
    if captured {
        recording::keep(memory);
    }
    Ok(())
}

/// The same for launches that leave the memory zero: those of a stream share it.
pub fn with_workspace(
    queue: Queue,
    bytes: u64,
    launch: impl FnOnce(u64) -> Result<(), Diagnostics>,
) -> Result<(), Diagnostics> {
    match workspace(queue, bytes)? {
        Some(address) => launch(address),
        None => with_context(queue, bytes, launch),
    }
}

/// The memory that such launches of a stream share; None where it is too small, or while the stream is recorded.
pub fn workspace(queue: Queue, bytes: u64) -> Result<Option<u64>, Diagnostics> {
    Ok(open(queue.device)?.workspace(queue.stream, bytes)?)
}
