//! Memory of launches that leave it as they found it, which is zero.
//!
//! Launches of one stream follow each other, so that all of them can have the same piece, whatever they
//! are of; launches of two streams may run at once, and have each their own. A stream is known by the
//! driver's number of it, which no other stream ever gets: work may outlive the handle of its stream. What
//! is being recorded has none: a graph runs beside the stream that it was recorded on. Pieces are kept for
//! good. A launch that fails on the way takes the whole context with it, and these pieces too.

use super::api::{Api, NO_FUNCTION};
use super::device::Device;
use super::error::CudaError;
use super::pool::DeviceBuffer;
use super::stream::{Stream, StreamKey, StreamRef};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes of a piece.
pub const WORKSPACE_BYTES: u64 = 16;
/// Pieces that are allocated at once.
const AT_ONCE: u64 = 256;

#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Name {
    Number(u64),
    /// Default streams, and all streams of drivers that give no numbers.
    Handle(StreamKey),
}

#[derive(Default)]
pub(crate) struct Workspaces {
    pieces: BTreeMap<Name, u64>,
    blocks: Vec<DeviceBuffer>,
    free: Vec<u64>,
}

fn name(api: &Api, stream: StreamRef) -> Result<Name, CudaError> {
    if stream.raw() <= StreamRef::PER_THREAD.raw() {
        return Ok(Name::Handle(stream.key()));
    }
    let mut number = 0;
    // SAFETY: `number` is a place for one; the stream exists.
    match unsafe { api.cuStreamGetId(stream.handle(), &mut number) } {
        Ok(()) => Ok(Name::Number(number)),
        Err(failure) if failure.result == NO_FUNCTION => Ok(Name::Handle(stream.key())),
        Err(failure) => Err(failure.into()),
    }
}

impl Device {
    /// The address of [`WORKSPACE_BYTES`] bytes for launches on a stream that leave them zero; none while
    /// the stream is being recorded.
    pub fn workspace(self: &Arc<Self>, stream: StreamRef) -> Result<Option<u64>, CudaError> {
        let _current = self.make_current()?;
        let api = self.context.api;
        if stream.is_capturing(api)? {
            return Ok(None);
        }
        let name = name(api, stream)?;
        let mut workspaces = self.workspaces.lock();
        if let Some(&piece) = workspaces.pieces.get(&name) {
            return Ok(Some(piece));
        }
        if workspaces.free.is_empty() {
            // On a stream of its own: others may be recorded meanwhile.
            let own = Stream::new(self)?;
            let bytes = AT_ONCE * WORKSPACE_BYTES;
            let block = self.pool().alloc(bytes, own.handle())?;
            block.set(0, bytes, 0, own.handle())?;
            self.synchronize(own.handle())?;
            let pieces = (0..AT_ONCE).rev().map(|n| block.address() + n * WORKSPACE_BYTES);
            workspaces.free.extend(pieces);
            workspaces.blocks.push(block);
        }
        let Some(piece) = workspaces.free.pop() else { return Ok(None) };
        workspaces.pieces.insert(name, piece);
        Ok(Some(piece))
    }
}
