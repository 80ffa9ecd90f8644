//! A per-stream workspace of counters that each kernel resets to zero before it exits.
//!
//! Launches of one stream run one after another and share one piece. Launches of two streams may
//! run concurrently, and each stream has its own. A stream is identified by the driver's number,
//! which no other stream ever gets: work may outlive the handle of its stream. A stream that is
//! being captured has no workspace: its graph may run concurrently with the stream. Pieces are
//! never freed. A launch that fails before it resets its counters invalidates the whole context,
//! and these pieces with it.

use super::api::{Api, NO_FUNCTION};
use super::device::Device;
use super::error::CudaError;
use super::pool::DeviceBuffer;
use super::stream::{Stream, StreamKey, StreamRef};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes of a piece.
pub const WORKSPACE_BYTES: u64 = 16;
/// Pieces of one allocation.
const PIECES_PER_BLOCK: u64 = 256;

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
    /// The address of the stream's [`WORKSPACE_BYTES`] bytes, for kernels that leave them zero;
    /// `None` while the stream is being captured.
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
            let bytes = PIECES_PER_BLOCK * WORKSPACE_BYTES;
            let block = self.pool().alloc(bytes, own.handle())?;
            block.set(0, bytes, 0, own.handle())?;
            self.synchronize(own.handle())?;
            let numbers = (0..PIECES_PER_BLOCK).rev();
            let pieces = numbers.map(|n| block.address() + n * WORKSPACE_BYTES);
            workspaces.free.extend(pieces);
            workspaces.blocks.push(block);
        }
        let Some(piece) = workspaces.free.pop() else { return Ok(None) };
        workspaces.pieces.insert(name, piece);
        Ok(Some(piece))
    }
}
