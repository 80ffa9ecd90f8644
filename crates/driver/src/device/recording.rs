//! Recordings of launches, and what was launched last.

use super::open;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tessera_diag::{Code, Diagnostic, Diagnostics, Loc};
use tessera_support::ForkLock;
use tessera_target::Queue;
use tessera_target::device::{self as hal, DeviceError, DeviceId, Function, Kept};

/// Launches recorded once, to be done again as one.
pub struct Graph {
    // It goes before what it uses.
    graph: Box<dyn hal::Graph>,
    device: DeviceId,
    shared: Vec<Arc<dyn UsedByGraph>>,
}

/// Memory that a recorded launch uses and that others may use too.
pub trait UsedByGraph: Send + Sync {
    /// Says that work on this stream uses it.
    fn used_on(&self, stream: u64);
}

impl UsedByGraph for super::Memory {
    fn used_on(&self, stream: u64) {
        super::Memory::used_on(self, stream);
    }
}

impl Graph {
    /// How many launches and copies it holds.
    pub fn nodes(&self) -> usize {
        self.graph.nodes()
    }

    pub fn device(&self) -> DeviceId {
        self.device
    }

    pub fn replay(&self, stream: u64) -> Result<(), Diagnostics> {
        self.shared.iter().for_each(|memory| memory.used_on(stream));
        // SAFETY: the binding keeps all arrays that were used in the recording.
        unsafe { self.graph.launch(stream) }?;
        queued(1, Queue { device: self.device, stream });
        Ok(())
    }
}

/// The open recording of this thread, with what its graph needs for as long as it is replayed.
struct Recording {
    device: DeviceId,
    recording: Box<dyn hal::Recording>,
    kept: Kept,
    shared: Vec<Arc<dyn UsedByGraph>>,
}

thread_local! {
    static RECORDING: RefCell<Option<Recording>> = const { RefCell::new(None) };
}

/// Begins to record what this thread gives to a stream of its own, whose handle it gives. What was
/// given to the device before is waited for: a recording cannot wait for it.
pub fn begin_recording(id: DeviceId) -> Result<u64, Diagnostics> {
    RECORDING.with_borrow_mut(|now| {
        if now.is_some() {
            let message = "expected no recording inside another, got one";
            return Err(Diagnostic::new(Code::E_CAPTURE, message).into());
        }
        let device = open(id)?;
        device.synchronize_all()?;
        let recording = device.record()?;
        let stream = recording.stream();
        let (kept, shared) = (Kept::default(), Vec::new());
        *now = Some(Recording { device: id, recording, kept, shared });
        Ok(stream)
    })
}

/// Ends the recording of this thread.
pub fn end_recording() -> Result<Graph, Diagnostics> {
    let Some(Recording { device, recording, kept, shared }) = RECORDING.take() else {
        let message = "expected a recording on this thread, got none";
        return Err(Diagnostic::new(Code::E_CAPTURE, message).into());
    };
    Ok(Graph { graph: recording.end(kept)?, device, shared })
}

/// Whether this thread records.
pub fn is_recording() -> bool {
    RECORDING.with_borrow(Option::is_some)
}

/// Gives up the recording of this thread, if there is one.
pub fn drop_recording() {
    RECORDING.take();
}

/// Keeps memory that a captured launch uses.
pub(super) fn keep(memory: Box<dyn hal::Memory>) {
    RECORDING.with_borrow_mut(|now| match now {
        Some(recording) => recording.kept.memory.push(memory),
        // Another library's capture: there is no notice when its graph is destroyed.
        None => std::mem::forget(memory),
    });
}

/// Keeps what the recording of this thread uses for as long as its graph.
pub(crate) fn share(memory: Arc<dyn UsedByGraph>) {
    RECORDING.with_borrow_mut(|now| {
        if let Some(recording) = now {
            recording.shared.push(memory);
        }
    });
}

/// An error that a wait brought up: of a kernel that was launched before, most likely the last.
pub(crate) fn of_launch(error: DeviceError) -> Diagnostics {
    let last = LAST.lock().clone().filter(|_| error.lost);
    let Some(about) = last else { return error.into() };
    let mut found = Diagnostic::from(error);
    found.notes.push(format!("the last launch before was of `{}`", about.name));
    if !found.loc.is_known() {
        found.loc = about.loc.clone();
    }
    found.into()
}

static LAUNCHES: AtomicU64 = AtomicU64::new(0);
static LAST_STREAM: AtomicU64 = AtomicU64::new(0);
static LAST_DEVICE: AtomicU64 = AtomicU64::new(0);

/// A kernel as errors name it.
pub struct About {
    pub name: String,
    pub loc: Loc,
}

/// What was launched last: a device that fails later does not say what made it.
static LAST: ForkLock<Option<Arc<About>>> = ForkLock::new(None);

fn is_last(about: &Arc<About>) {
    let mut last = LAST.lock();
    if !last.as_ref().is_some_and(|last| Arc::ptr_eq(last, about)) {
        *last = Some(about.clone());
    }
}

/// Launches were put on a stream, and are no part of a recording: they are counted together.
pub(crate) fn launched_all(count: u64, last: &Arc<About>, queue: Queue) {
    is_last(last);
    queued(count, queue);
}

/// A launch was put on a stream: it is counted for `ts.bench`, and kept if it was recorded.
#[inline]
pub fn launched(function: &Arc<dyn Function>, about: &Arc<About>, queue: Queue) {
    is_last(about);
    RECORDING.with_borrow_mut(|now| {
        if let Some(recording) = now {
            recording.kept.functions.push(function.clone());
        }
    });
    queued(1, queue);
}

fn queued(count: u64, queue: Queue) {
    LAST_STREAM.store(queue.stream, Ordering::Relaxed);
    LAST_DEVICE.store(queue.device.bits(), Ordering::Relaxed);
    LAUNCHES.fetch_add(count, Ordering::Relaxed);
}

/// How many launches were put on streams so far, and where the last one went.
pub fn launches() -> (u64, Queue) {
    let device = DeviceId::from_bits(LAST_DEVICE.load(Ordering::Relaxed));
    let stream = LAST_STREAM.load(Ordering::Relaxed);
    (LAUNCHES.load(Ordering::Relaxed), Queue { device, stream })
}
