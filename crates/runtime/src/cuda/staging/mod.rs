//! Pinned host memory for copies between host and device. Arrays of users are pageable: their bytes
//! go through this staging buffer in chunks. The CPU fills one chunk while the device copies
//! another.

mod ring_buffer;

use super::context::{Context, Handle};
use super::error::CudaError;
use super::event::Event;
use super::graph::Relaxed;
use super::stream::StreamRef;
use cudarc::driver::sys::CU_MEMHOSTALLOC_PORTABLE;
use ring_buffer::{RingBuffer, pieces};
use std::collections::VecDeque;
use std::ops::Range;
use std::ptr::null_mut;
use std::sync::Arc;

const CAPACITY: usize = 16 << 20;
/// A quarter: two are in flight while one is filled, and one is left for others.
const CHUNK: usize = CAPACITY / 4;

/// It is kept to the end of the process, as its context is.
pub(crate) struct Staging {
    context: Context,
    memory: Handle<u8>,
    buffer: RingBuffer<Arc<Event>>,
    spare: Vec<Arc<Event>>,
}

/// A chunk whose copy to the host is in flight.
struct Coming {
    event: Arc<Event>,
    at: usize,
    range: Range<usize>,
}

impl Staging {
    pub fn new(context: Context) -> Result<Self, CudaError> {
        let _current = context.make_current()?;
        let _relaxed = Relaxed::begin(context.api);
        let mut memory = null_mut();
        // SAFETY: `memory` is a place for an address.
        unsafe { context.api.cuMemHostAlloc(&mut memory, CAPACITY, CU_MEMHOSTALLOC_PORTABLE) }?;
        let buffer = RingBuffer::new(CAPACITY);
        Ok(Self { context, memory: Handle(memory.cast()), buffer, spare: Vec::new() })
    }

    /// Bytes to the device. They may change when this returns; the copy is in the stream's order.
    ///
    /// # Safety
    /// `to` is memory of the device for all bytes of `from`; the stream exists.
    pub unsafe fn copy_in(
        &mut self,
        to: u64,
        from: &[u8],
        stream: StreamRef,
    ) -> Result<(), CudaError> {
        let _current = self.context.make_current()?;
        for range in pieces(from.len(), CHUNK) {
            let bytes = range.len();
            let at = self.room(bytes, &mut VecDeque::new(), &mut [])?;
            // SAFETY: the ring buffer gave this piece of the memory to no other copy.
            let chunk = unsafe { self.memory.0.add(at) };
            // SAFETY: as above, and `range` is inside `from`; `to` is what the caller says.
            unsafe {
                chunk.copy_from_nonoverlapping(from[range.clone()].as_ptr(), bytes);
                let to = to + range.start as u64;
                self.context.api.cuMemcpyHtoDAsync_v2(to, chunk.cast(), bytes, stream.handle())?;
            }
            self.taken(at, bytes, stream)?;
        }
        Ok(())
    }

    /// Bytes to the host: they are there when this returns.
    ///
    /// # Safety
    /// `from` is memory of the device for all bytes of `to`; the stream exists.
    pub unsafe fn copy_out(
        &mut self,
        to: &mut [u8],
        from: u64,
        stream: StreamRef,
    ) -> Result<(), CudaError> {
        let _current = self.context.make_current()?;
        let mut coming = VecDeque::new();
        for range in pieces(to.len(), CHUNK) {
            let bytes = range.len();
            let at = self.room(bytes, &mut coming, to)?;
            // SAFETY: the ring buffer gave this piece of the memory to no other copy; `from` is
            // what the caller says.
            unsafe {
                let chunk = self.memory.0.add(at);
                let from = from + range.start as u64;
                self.context.api.cuMemcpyDtoHAsync_v2(
                    chunk.cast(),
                    from,
                    bytes,
                    stream.handle(),
                )?;
            }
            let event = self.taken(at, bytes, stream)?;
            coming.push_back(Coming { event, at, range });
        }
        while let Some(chunk) = coming.pop_front() {
            self.arrive(chunk, to)?;
        }
        Ok(())
    }

    /// A place for `bytes` bytes. Waits for the oldest copies. Bytes that came from the device are
    /// copied out before their place is reused.
    fn room(
        &mut self,
        bytes: usize,
        coming: &mut VecDeque<Coming>,
        to: &mut [u8],
    ) -> Result<usize, CudaError> {
        loop {
            if let Some(at) = self.buffer.place(bytes) {
                return Ok(at);
            }
            let Some(oldest) = self.buffer.oldest().cloned() else {
                // An empty buffer has room for a chunk.
                return Ok(0);
            };
            match coming.pop_front_if(|chunk| Arc::ptr_eq(&chunk.event, &oldest)) {
                Some(chunk) => self.arrive(chunk, to)?,
                None => oldest.synchronize()?,
            }
            self.buffer.retire();
            self.spare.push(oldest);
        }
    }

    fn arrive(&self, chunk: Coming, to: &mut [u8]) -> Result<(), CudaError> {
        chunk.event.synchronize()?;
        let to = &mut to[chunk.range];
        // SAFETY: the device has written this piece of the memory, and nobody else has it.
        unsafe { self.memory.0.add(chunk.at).copy_to_nonoverlapping(to.as_mut_ptr(), to.len()) };
        Ok(())
    }

    /// The piece is taken until the stream is past this point.
    fn taken(
        &mut self,
        at: usize,
        bytes: usize,
        stream: StreamRef,
    ) -> Result<Arc<Event>, CudaError> {
        // An event that another thread still holds is not reused.
        let spare = self.spare.pop().filter(|event| Arc::strong_count(event) == 1);
        let event = match spare {
            Some(event) => event,
            None => Arc::new(Event::ordering(self.context)?),
        };
        event.record(stream)?;
        self.buffer.take(at, bytes, event.clone());
        Ok(event)
    }
}
